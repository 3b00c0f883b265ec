WITH fetches AS (
  SELECT client_id, client_ip, connection_id, exchange_id, error_count, latency_us, topics, partitions
  FROM {exchanges}
  -- Without an error count the response could not be read, and its contents are unknown.
  WHERE api IN ({apis}) AND status = 'answered' AND error_count IS NOT NULL
),
{fetched},
judged AS (
  SELECT {keys}, error_count, latency_us, bytes, records, bytes = 0 AND error_count = 0 AS is_empty FROM fetched
)
SELECT
  {keys},
  count(*) AS fetches,
  count(CASE WHEN is_empty THEN 1 END) AS empty,
  count(CASE WHEN error_count > 0 THEN 1 END) AS failed,
  CAST(sum(bytes) AS BIGINT) AS bytes,
  CAST(sum(records) AS BIGINT) AS records,
  CAST(coalesce(sum(CASE WHEN is_empty THEN latency_us END), 0) AS BIGINT) AS waited_us
FROM judged
GROUP BY {keys}
