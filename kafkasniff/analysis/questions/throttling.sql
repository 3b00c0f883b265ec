SELECT
  {keys},
  count(*) AS exchanges,
  count(CASE WHEN throttle_time_ms > 0 THEN 1 END) AS throttled,
  CAST(sum(throttle_time_ms) AS BIGINT) AS throttle_ms,
  max(throttle_time_ms) AS max_ms,
  min(CASE WHEN throttle_time_ms > 0 THEN time_ns END) AS first_ns,
  max(CASE WHEN throttle_time_ms > 0 THEN time_ns END) AS last_ns
FROM (SELECT {made}, time_ns, throttle_time_ms FROM {exchanges}) AS talks
GROUP BY {keys}
HAVING max(throttle_time_ms) > 0
