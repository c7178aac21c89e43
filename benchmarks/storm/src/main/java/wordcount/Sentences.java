package wordcount;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.Utils;

/**
 * Emits its part of the sentences with their numbers, in phases; each begins when there is a file `go-<phase>`, and ends
 * with its last ack. Then a note says when it began, and when each hundredth of its acks had come; of a failed tree there is
 * a note at once. At the file for a phase after the last one it tells the Counts that this was all.
 */
public final class Sentences extends BaseRichSpout {
    static final String END = "end";
    private static final int STAMPS = 100;

    private final String folder;
    private final int[] phases;
    private transient SpoutOutputCollector collector;
    private transient List<String> lines;
    private transient BitSet open;
    private transient long[] stamps;
    private transient Path go;
    private int index;
    private int spouts;
    private int phase;
    private int emits;
    private int emitted;
    private int acked;
    private int nextStamp;
    private boolean running;
    private boolean told;
    private long begun;

    Sentences(String folder, int[] phases) {
        this.folder = folder;
        this.phases = phases;
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector collector) {
        this.collector = collector;
        index = context.getThisTaskIndex();
        spouts = context.getComponentTasks(context.getThisComponentId()).size();
        lines = new ArrayList<>();
        try {
            List<String> all = Files.readAllLines(Path.of(folder, "sentences.txt"));
            for (int i = index; i < all.size(); i += spouts) {
                lines.add(all.get(i));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        go = Path.of(folder, "go-0");
        Notes.leave(folder, "sentences", index, "");
    }

    @Override
    public void nextTuple() {
        if (!running) {
            await();
        } else if (emitted < emits) {
            int number = emitted++;
            collector.emit(new Values(lines.get(number % lines.size())), number);
        }
    }

    /** Begins the next phase when it may. */
    private void await() {
        if (told || !Files.exists(go)) {
            Utils.sleep(5);
            return;
        }
        if (phase == phases.length) {
            told = true;
            if (index == 0) {
                collector.emit(END, new Values(0));
            }
            return;
        }
        emits = (phases[phase] - index + spouts - 1) / spouts;
        emitted = 0;
        acked = 0;
        nextStamp = 0;
        stamps = new long[STAMPS];
        open = new BitSet(emits);
        open.set(0, emits);
        running = true;
        begun = System.nanoTime();
    }

    @Override
    public void ack(Object id) {
        int number = (Integer) id;
        if (!open.get(number)) {
            Notes.leave(folder, "twice", index, "");
        }
        open.clear(number);
        acked++;
        while (nextStamp < STAMPS && acked >= (long) emits * (nextStamp + 1) / STAMPS) {
            stamps[nextStamp++] = System.nanoTime();
        }
        if (acked == emits) {
            done();
        }
    }

    private void done() {
        StringJoiner texts = new StringJoiner(", ", "[", "]");
        for (long stamp : stamps) {
            texts.add(Double.toString(stamp / 1e9));
        }
        Notes.leave(folder, "done-" + phase, index, "\"begun\": " + begun / 1e9 + ", \"stamps\": " + texts);
        phase++;
        go = Path.of(folder, "go-" + phase);
        running = false;
    }

    @Override
    public void fail(Object id) {
        Notes.leave(folder, "failed", index, "\"number\": " + id);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
        declarer.declare(new Fields("sentence"));
        declarer.declareStream(END, new Fields("nothing"));
    }
}
