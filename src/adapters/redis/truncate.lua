-- Ends the buffer at a turn under a newer epoch. Whoever still writes under the old one is refused from now on.
-- KEYS: the buffer. ARGV: time to live (ms), last number, new epoch, new head.
local buffer = KEYS[1]
local epoch = tonumber(redis.call('HGET', buffer, 'epoch'))
if not epoch or epoch >= tonumber(ARGV[3]) then
  return 0
end
local last = tonumber(ARGV[2])
for _, field in ipairs(redis.call('HKEYS', buffer)) do
  local number = tonumber(field)
  if number and number > last then
    redis.call('HDEL', buffer, field)
  end
end
redis.call('HSET', buffer, 'epoch', ARGV[3], 'head', ARGV[4])
redis.call('PEXPIRE', buffer, ARGV[1])
return 1
