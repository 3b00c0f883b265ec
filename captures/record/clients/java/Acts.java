import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;

/** The acts of a play: each is asked for by a line of stdin, its name and arguments, and its end is reported. */
final class Acts {
    interface Act {
        void play(String name, String[] arguments) throws Exception;
    }

    static void play(Act act) throws Exception {
        Report.client();
        try (var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                act.play(words[0], Arrays.copyOfRange(words, 1, words.length));
                Report.line("end_of_act");
            }
        }
    }
}
