package wordcount;

import java.util.HashMap;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;

/** Counts words, and writes its counts at the end of the input. */
public final class Count extends BaseRichBolt {
    private final String folder;
    private transient OutputCollector collector;
    private transient Map<String, Integer> counts;
    private int index;

    Count(String folder) {
        this.folder = folder;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        this.collector = collector;
        counts = new HashMap<>();
        index = context.getThisTaskIndex();
        Notes.leave(folder, "count", index, "");
    }

    @Override
    public void execute(Tuple tuple) {
        if (Sentences.END.equals(tuple.getSourceStreamId())) {
            leave();
        } else {
            counts.merge(tuple.getString(0), 1, Integer::sum);
        }
        collector.ack(tuple);
    }

    private void leave() {
        StringJoiner texts = new StringJoiner(", ", "{", "}");
        counts.forEach((word, count) -> texts.add("\"" + word + "\": " + count));
        Notes.leave(folder, "counted", index, "\"counts\": " + texts);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        // It emits nothing.
    }
}
