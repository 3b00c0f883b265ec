package kafkasniff.vectors;

import java.util.List;

/**
 * How a message is filled.
 *
 * @param name what the vectors call it
 * @param leafNulls probability of null for strings, bytes and records where Kafka can write it
 * @param nulls the same for arrays and structs
 * @param set probability that a field gets a value other than its default
 * @param tags the same for tagged fields
 * @param unknownTags probability of tagged fields without a definition, per struct
 * @param most elements of an array at the top, one less per level down; -1: at random
 * @param least and how many it has at least
 * @param inner whether arrays and structs are null that lie within another one that could be null; only of messages that have such
 */
record Variant(String name, double leafNulls, double nulls, double set, double tags, double unknownTags, int most, int least,
        boolean inner) {
    Variant(String name, double leafNulls, double nulls, double set, double tags, double unknownTags, int most, int least) {
        this(name, leafNulls, nulls, set, tags, unknownTags, most, least, false);
    }

    static final List<Variant> ALL = List.of(
        new Variant("default", 0, 0, 0, 0, 0, 0, 0),
        new Variant("null", 1, 1, 1, 1, 0, 1, 1),
        new Variant("null-leaves", 1, 0, 1, 1, 0.2, 1, 1),
        new Variant("null-inner", 0, 0, 1, 1, 0, 1, 1, true),
        new Variant("untagged", 0, 0.2, 1, 0, 0, 3, 2),
        new Variant("full", 0, 0, 1, 1, 1, 3, 1),
        new Variant("random-1", 0.2, 0.1, 0.6, 0.6, 0.2, -1, 0),
        new Variant("random-2", 0.3, 0.3, 0.8, 0.8, 0.1, -1, 0));
}
