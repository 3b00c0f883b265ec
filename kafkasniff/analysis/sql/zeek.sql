-- A row per TCP connection, as in Zeek's conn.log.
CREATE VIEW conn AS
SELECT
  epoch_us(transport.time) / 1e6 AS ts,
  'C' || lower(hex(transport.connection_id)) AS uid,
  transport.client_ip AS "id.orig_h",
  transport.client_port AS "id.orig_p",
  transport.broker_ip AS "id.resp_h",
  transport.broker_port AS "id.resp_p",
  'tcp' AS proto,
  CASE
    WHEN protocol = 'Kafka over TLS' THEN 'ssl,kafka'
    WHEN protocol LIKE 'TLS%' THEN 'ssl'
    ELSE lower(protocol)
  END AS service,
  (transport.end_time_ns - transport.time_ns) / 1e9 AS duration,
  client_bytes AS orig_bytes,
  broker_bytes AS resp_bytes,
  CASE
    WHEN opening = 'unanswered' THEN 'S0'
    WHEN opening = 'refused' THEN 'REJ'
    WHEN opening IS NULL THEN 'OTH'
    WHEN ended_with = 'rst' AND ended_by = 'client' THEN 'RSTO'
    WHEN ended_with = 'rst' THEN 'RSTR'
    WHEN ended_with = 'fin' THEN 'SF'
    ELSE 'S1'
  END AS conn_state,
  bytes_lost AS missed_bytes,
  client_packets AS orig_pkts,
  broker_packets AS resp_pkts
FROM transport
LEFT JOIN connections ON connections.connection_id = transport.connection_id;

-- A row per request and its response, in the form of Zeek's logs.
CREATE VIEW kafka AS
SELECT
  epoch_us(time) / 1e6 AS ts,
  'C' || lower(hex(connection_id)) AS uid,
  client_ip AS "id.orig_h",
  client_port AS "id.orig_p",
  broker_ip AS "id.resp_h",
  broker_port AS "id.resp_p",
  api,
  api_version AS version,
  correlation_id,
  client_id,
  nullif(concat_ws(' ', software_name, software_version), '') AS software,
  group_id AS "group",
  topics,
  status,
  error_code,
  error,
  request_size AS orig_bytes,
  response_size AS resp_bytes,
  latency_us / 1e6 AS latency
FROM exchanges;
