WITH named AS (
  SELECT coalesce(one.node_id, one.broker_id) AS node_id, one.rack AS rack, time_ns, connection_id, exchange_id
  FROM (
    SELECT {each_broker} AS one, time_ns, connection_id, exchange_id
    FROM {exchanges}
    WHERE api IN ({rack_apis}) AND response_body IS NOT NULL
  ) AS exploded
),
latest AS (
  SELECT
    node_id, rack,
    row_number() OVER (
      PARTITION BY node_id
      ORDER BY time_ns DESC NULLS FIRST, connection_id DESC NULLS FIRST, exchange_id DESC NULLS FIRST, rack
    ) AS place
  FROM named
  WHERE node_id IS NOT NULL
),
fetches AS (
  SELECT
    client_id, client_ip, {is_follower} AS follower, {rack} AS client_rack, broker_id, {broker} AS broker,
    {bytes_inside} AS bytes, {records_inside} AS records, response_size
  FROM {exchanges}
  WHERE api IN ({apis})
),
clients AS (
  SELECT
    client_id, client_ip, follower, client_rack, broker_id, broker,
    count(*) AS fetches,
    CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
    CAST(coalesce(sum(records), 0) AS BIGINT) AS records,
    CAST(coalesce(sum(response_size), 0) AS BIGINT) AS response_bytes
  FROM fetches
  GROUP BY client_id, client_ip, follower, client_rack, broker_id, broker
)
SELECT
  client_id, client_ip, follower, client_rack, broker_id, broker, latest.rack AS broker_rack,
  fetches, bytes, records, response_bytes
FROM clients
LEFT JOIN latest ON latest.node_id = clients.broker_id AND latest.place = 1
