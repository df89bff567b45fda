-- Everything of a buffer, which was used by that.
-- KEYS: the buffer. ARGV: time to live (ms).
local fields = redis.call('HGETALL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return fields
