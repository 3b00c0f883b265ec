-- A row per TCP connection, as an event of the class Network Activity (4001) of OCSF 1.3.
CREATE VIEW network_activity AS
SELECT
  epoch_ms(transport.time) AS "time",
  epoch_ms(transport.time) AS start_time,
  epoch_ms(transport.end_time) AS end_time,
  (transport.end_time_ns - transport.time_ns) // 1000000 AS duration,
  4 AS category_uid,
  4001 AS class_uid,
  400100 + activity AS type_uid,
  activity AS activity_id,
  1 AS severity_id,
  CASE WHEN activity IN (4, 5) THEN 2 ELSE 1 END AS status_id,
  {'ip': transport.client_ip, 'port': transport.client_port} AS src_endpoint,
  {'ip': transport.broker_ip, 'port': transport.broker_port} AS dst_endpoint,
  {'uid': CAST(transport.connection_id AS VARCHAR), 'protocol_num': 6, 'protocol_name': 'tcp', 'direction_id': 0}
    AS connection_info,
  protocol AS app_name,
  {
    'bytes': client_bytes + broker_bytes, 'bytes_out': client_bytes, 'bytes_in': broker_bytes,
    'packets': client_packets + broker_packets, 'packets_out': client_packets, 'packets_in': broker_packets
  } AS traffic,
  {'version': '1.3.0', 'product': {'name': 'kafkasniff', 'vendor_name': 'kafkasniff'}} AS metadata
FROM (
  -- Close, Reset, Fail, Refuse or else Traffic.
  SELECT
    *,
    CASE
      WHEN opening = 'unanswered' THEN 4
      WHEN opening = 'refused' THEN 5
      WHEN ended_with = 'rst' THEN 3
      WHEN ended_with = 'fin' THEN 2
      ELSE 6
    END AS activity
  FROM transport
) AS transport
LEFT JOIN connections ON connections.connection_id = transport.connection_id;

-- A row per request and its response, as an event of the class API Activity (6003) of OCSF 1.3.
CREATE VIEW api_activity AS
SELECT
  epoch_ms(exchanges.time) AS "time",
  duration_us // 1000 AS duration,
  6 AS category_uid,
  6003 AS class_uid,
  600300 + activity AS type_uid,
  activity AS activity_id,
  api AS activity_name,
  1 AS severity_id,
  CASE WHEN error_count > 0 THEN 2 WHEN error_count = 0 THEN 1 ELSE 0 END AS status_id,
  {'user': {'name': principal}, 'app_name': client_id} AS actor,
  {
    'operation': api, 'version': CAST(api_version AS VARCHAR), 'service': {'name': 'kafka'},
    'request': {'uid': CAST(correlation_id AS VARCHAR)}, 'response': {'code': error_code, 'error': error}
  } AS api,
  [{'name': one, 'type': 'topic'} for one in topics] AS resources,
  {'ip': exchanges.client_ip, 'port': exchanges.client_port} AS src_endpoint,
  {'ip': exchanges.broker_ip, 'port': exchanges.broker_port} AS dst_endpoint,
  {'version': '1.3.0', 'product': {'name': 'kafkasniff', 'vendor_name': 'kafkasniff'}} AS metadata
FROM (
  -- Create, Read, Update, Delete or else Other.
  SELECT
    *,
    CASE
      WHEN api = 'Produce' OR api LIKE 'Create%' THEN 1
      WHEN api IN ('Fetch', 'ShareFetch', 'Metadata', 'OffsetFetch') OR regexp_matches(api, '^(List|Describe|Find)')
        THEN 2
      WHEN regexp_matches(api, '^(Alter|IncrementalAlter|Update)') OR api = 'OffsetCommit' THEN 3
      WHEN regexp_matches(api, '^(Delete|OffsetDelete)') THEN 4
      ELSE 99
    END AS activity
  FROM exchanges
) AS exchanges
LEFT JOIN connections ON connections.connection_id = exchanges.connection_id;
