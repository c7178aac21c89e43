package wordcount;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** What components leave for the benchmark that started them: JSON files in a folder, whole or not at all. */
final class Notes {
    private Notes() {
    }

    /** Leaves a note of this process; `values` is the inside of a JSON object. */
    static void leave(String folder, String kind, int index, String values) {
        String name = String.format("%s-%04d", kind, index);
        long pid = ProcessHandle.current().pid();
        String text = "{\"pid\": " + pid + ", \"index\": " + index + (values.isEmpty() ? "" : ", " + values) + "}";
        Path beside = Path.of(folder, name + "." + pid);
        try {
            Files.writeString(beside, text);
            Files.move(beside, Path.of(folder, name + ".json"), StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
