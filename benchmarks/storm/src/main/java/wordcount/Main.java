package wordcount;

import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;

/** The word count of `benchmarks/two_workers.py` for Storm: builds the topology and submits it. Settings: `storm.options`. */
public final class Main {
    private Main() {
    }

    /** Arguments: the folder for notes, the name, how many spouts, the grouping of Split, and the sentences of each phase. */
    public static void main(String[] args) throws Exception {
        String folder = args[0];
        String name = args[1];
        int spouts = Integer.parseInt(args[2]);
        boolean local = args[3].equals("local");
        int[] phases = new int[args.length - 4];
        for (int i = 0; i < phases.length; i++) {
            phases[i] = Integer.parseInt(args[i + 4]);
        }
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("sentences", new Sentences(folder, phases), spouts);
        BoltDeclarer split = builder.setBolt("split", new Split(folder), spouts);
        if (local) {
            split.localOrShuffleGrouping("sentences");
        } else {
            split.shuffleGrouping("sentences");
        }
        builder.setBolt("count", new Count(folder), 2)
                .fieldsGrouping("split", new Fields("word"))
                .allGrouping("sentences", Sentences.END);
        Config conf = new Config();
        conf.setNumWorkers(2);
        StormSubmitter.submitTopology(name, conf, builder.createTopology());
    }
}
