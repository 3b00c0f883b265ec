WITH members AS ({members}),
parts AS (
  SELECT
    api, client_id, client_ip, group_id, time_ns, connection_id, exchange_id, {is_follower} AS follower,
    coalesce(one.topic, one.topic_id) AS topic, one.partition AS part, one.error_code AS code, one.offset AS place,
    one.high_watermark AS high_watermark, one.record_count AS records
  FROM (
    SELECT api, client_id, client_ip, group_id, time_ns, connection_id, exchange_id, explode(partitions) AS one
    FROM {exchanges}
    WHERE api IN ({apis})
  ) AS exploded
),
turned AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY topic, part ORDER BY time_ns NULLS LAST, connection_id, exchange_id, place, high_watermark
    ) AS turn
  FROM parts
),
ends AS (
  SELECT
    topic, part,
    max_by(high_watermark, CASE WHEN api = 'Fetch' AND high_watermark >= 0 THEN turn END) AS high_watermark,
    max_by(time_ns, CASE WHEN api = 'Fetch' AND high_watermark >= 0 THEN turn END) AS watermark_ns,
    max(CASE WHEN api = 'Produce' AND place >= 0 THEN place + records END) AS log_end_offset
  FROM turned
  WHERE code = 0
  GROUP BY topic, part
),
clients AS (
  SELECT
    members.group_id AS group_id, turned.client_id AS client_id, turned.client_ip AS client_ip, topic, part,
    max(turn) AS fetch_turn,
    max_by(place, turn) AS fetched_offset,
    max_by(time_ns, turn) AS fetched_ns,
    max(CASE WHEN high_watermark >= place THEN high_watermark - place END) AS max_fetch_lag
  FROM turned
  LEFT JOIN members
    ON members.client_id IS NOT DISTINCT FROM turned.client_id AND members.client_ip IS NOT DISTINCT FROM turned.client_ip
  WHERE api = 'Fetch' AND place >= 0 AND NOT follower
  GROUP BY members.group_id, turned.client_id, turned.client_ip, topic, part
),
-- Of the clients of a group, the last one that fetched a partition owns it.
owners AS (
  SELECT
    group_id, client_id, client_ip, topic, part, fetched_offset, fetched_ns,
    max(max_fetch_lag) OVER (PARTITION BY {owner}) AS max_fetch_lag,
    row_number() OVER (PARTITION BY {owner} ORDER BY fetch_turn DESC) AS place
  FROM clients
),
commits AS (
  -- A request for several groups (OffsetFetch v8) does not show here which partition belongs to which.
  SELECT
    group_id, topic, part, max_by(place, turn) AS committed_offset, max_by(time_ns, turn) AS committed_ns
  FROM turned
  WHERE api IN ({commits}) AND code = 0 AND place >= 0 AND group_id IS NOT NULL
  GROUP BY group_id, topic, part
),
progress AS (
  SELECT
    coalesce(commits.group_id, owners.group_id) AS group_id,
    CASE WHEN commits.group_id IS NULL THEN owners.topic ELSE commits.topic END AS topic,
    coalesce(commits.part, owners.part) AS part,
    client_id, client_ip, committed_offset, committed_ns, fetched_offset, fetched_ns, max_fetch_lag
  FROM commits
  FULL JOIN (SELECT * FROM owners WHERE place = 1) AS owners
    ON owners.group_id = commits.group_id AND owners.topic IS NOT DISTINCT FROM commits.topic AND owners.part = commits.part
)
SELECT
  group_id, progress.topic AS topic, progress.part AS part, client_id, client_ip, committed_offset, fetched_offset,
  high_watermark, log_end_offset, max_fetch_lag, committed_ns, fetched_ns, watermark_ns
FROM progress
LEFT JOIN ends ON ends.topic IS NOT DISTINCT FROM progress.topic AND ends.part = progress.part
