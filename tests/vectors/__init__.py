"""Messages made by Apache Kafka's own generated classes, with what Kafka's own JSON converters say of them."""
