SELECT
  time_ns,
  connection_id,
  exchange_id,
  {shown},
  {broker} AS broker,
  (SELECT max(time_ns + greatest(coalesce(duration_us, 0), 0) * 1000) FROM {exchanges}) AS end_ns
FROM {exchanges}
WHERE status IN ({statuses})
