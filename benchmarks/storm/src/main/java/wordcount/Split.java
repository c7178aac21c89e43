package wordcount;

import java.util.Map;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** Emits the words of a sentence, anchored to it. */
public final class Split extends BaseRichBolt {
    private final String folder;
    private transient OutputCollector collector;

    Split(String folder) {
        this.folder = folder;
    }

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector collector) {
        this.collector = collector;
        Notes.leave(folder, "split", context.getThisTaskIndex(), "");
    }

    @Override
    public void execute(Tuple tuple) {
        for (String word : tuple.getString(0).split(" ")) {
            collector.emit(tuple, new Values(word));
        }
        collector.ack(tuple);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("word"));
    }
}
