-- One step of the ledger, as a whole or not at all.
--
-- KEYS: the gateways that live, what this one holds, then a row for each subject of a limit.
-- ARGV: the step, and in msgpack {gateway, generation, ...}. Numbers are doubles, times are this server's.
--
-- A row is {ttl, limit, rates, spend, shadow}: rates are {unit, capacity, period, n, debt}, spend is
-- {period, amount, end of the window, n, recorded, whether it is least}, and what there is not is false. Debt and
-- recorded are what the state database has: a row begins with them that this server does not have, or has lost. Where
-- recorded is the least, a gateway that was killed before it could settle is charged by its records: then nothing is in
-- flight any more that could be charged a second time.

local gateways, mine = KEYS[1], KEYS[2]
local args = cmsgpack.unpack(ARGV[2])
local gateway, generation = args[1], args[2]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local HELD_FOR = 65 * 86400 -- longer than any row that it speaks of
local LONGEST, SET_BACK = {hour = 3600, day = 86400, month = 31 * 86400}, 3600

local function text(number)
  return string.format('%.17g', number)
end

local function read(key, row)
  local names = {'n'}
  for _, rate in ipairs(row[3]) do
    names[#names + 1] = 'l' .. rate[1]
    names[#names + 1] = 'a' .. rate[1]
    names[#names + 1] = 'c' .. rate[1]
  end
  if row[4] then
    names[#names + 1] = 'u' .. row[4][1]
    names[#names + 1] = 'w' .. row[4][1]
  end
  local values = redis.call('HMGET', key, unpack(names))
  local state = {key = key, row = row, n = tonumber(values[1]) or 0, levels = {}}
  for i, rate in ipairs(row[3]) do
    local capacity, period = rate[2], rate[3]
    local level, at, before = tonumber(values[3 * i - 1]), tonumber(values[3 * i]), tonumber(values[3 * i + 1])
    if not level then
      level, at = capacity - rate[5], now
    elseif before ~= capacity then -- the share used stays
      level = level / before * capacity
    end
    state.levels[i] = math.min(capacity, level + math.max(0, now - at) * capacity / period)
  end
  if row[4] then
    local is_new = not values[#names]
    state.used, state.window = tonumber(values[#names - 1]) or 0, tonumber(values[#names]) or 0
    local told, last = row[4][3], now + LONGEST[row[4][1]] + SET_BACK
    if state.window > last then -- by a gateway whose clock was wrong
      state.window = told
    elseif told > state.window and told <= last then
      state.used, state.window = is_new and row[4][5] or 0, told
    end
    if row[4][6] and state.n == 0 and state.window == told then
      state.used = math.max(state.used, row[4][5])
    end
  end
  return state
end

local function write(state)
  local row = state.row
  local values = {'n', text(state.n)}
  local function put(name, number)
    values[#values + 1] = name
    values[#values + 1] = text(number)
  end
  for i, rate in ipairs(row[3]) do
    put('l' .. rate[1], state.levels[i])
    put('a' .. rate[1], now)
    put('c' .. rate[1], rate[2])
  end
  if row[4] then
    put('u' .. row[4][1], state.used)
    put('w' .. row[4][1], state.window)
  end
  redis.call('HSET', state.key, unpack(values))
  redis.call('EXPIRE', state.key, row[1])
end

local function told(state)
  return {state.n, state.levels, state.used or false, state.window or false}
end

local function give_back(entry)
  local key, rates, spend = entry[1], entry[2], entry[3]
  if redis.call('EXISTS', key) == 0 then
    return
  end
  local n = tonumber(redis.call('HGET', key, 'n')) or 0
  redis.call('HSET', key, 'n', text(math.max(0, n - 1)))
  for _, rate in ipairs(rates) do
    local values = redis.call('HMGET', key, 'l' .. rate[1], 'c' .. rate[1])
    if values[1] and rate[1] ~= 0 then -- a request stays counted
      redis.call('HSET', key, 'l' .. rate[1], text(math.min(tonumber(values[2]), tonumber(values[1]) + rate[2])))
    end
  end
  if spend then
    local values = redis.call('HMGET', key, 'u' .. spend[1], 'w' .. spend[1])
    if tonumber(values[2]) == spend[2] then
      redis.call('HSET', key, 'u' .. spend[1], text(math.max(0, tonumber(values[1]) - spend[3])))
    end
  end
end

-- All that a gateway held which is no more.
local function release(id, key)
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local kind = string.sub(fields[i], 1, 2)
    if kind == 'r:' then
      for _, entry in ipairs(cmsgpack.unpack(fields[i + 1])) do
        give_back(entry)
      end
    elseif kind == 's:' then
      local row = string.sub(fields[i], 3)
      local n = tonumber(redis.call('HGET', row, 'n'))
      if n then
        redis.call('HSET', row, 'n', text(math.max(0, n - tonumber(fields[i + 1]))))
      end
    end
  end
  redis.call('DEL', key)
  redis.call('ZREM', gateways, id)
end

local function alive(lease)
  redis.call('ZADD', gateways, text(now + lease), gateway)
  redis.call('EXPIRE', gateways, HELD_FOR)
  redis.call('EXPIRE', mine, HELD_FOR)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', gateways, '-inf', text(now), 'LIMIT', 0, 10)) do
    release(id, string.sub(mine, 1, -1 - #gateway) .. id)
  end
end

local steps = {}

-- {lease, sequence of the last batch that was settled}
function steps.hello()
  redis.call('HSET', mine, 'generation', generation)
  redis.call('HSETNX', mine, 'settled', args[4])
  alive(args[3])
  return {true}
end

-- {lease}
function steps.beat()
  alive(args[3])
  return {true}
end

function steps.bye()
  release(gateway, mine)
  return {true}
end

-- {id, rows} → {whether, of each row whether, states}: all that are no shadow, or nothing.
function steps.reserve()
  local states, granted, all = {}, {}, true
  for i, row in ipairs(args[4]) do
    local state = read(KEYS[2 + i], row)
    local has = not row[2] or state.n < row[2]
    for j, rate in ipairs(row[3]) do
      has = has and rate[4] <= state.levels[j]
    end
    has = has and (not row[4] or state.used + row[4][4] <= row[4][2])
    states[i], granted[i] = state, has
    all = all and (has or row[5])
  end
  local held = {}
  for i, state in ipairs(all and states or {}) do
    if granted[i] then
      local row, rates = state.row, {}
      state.n = state.n + 1
      for j, rate in ipairs(row[3]) do
        state.levels[j] = state.levels[j] - rate[4]
        rates[j] = {rate[1], rate[4]}
      end
      local spend = false
      if row[4] then
        state.used = state.used + row[4][4]
        spend = {row[4][1], state.window, row[4][4]}
      end
      write(state)
      held[#held + 1] = {state.key, rates, spend}
    end
  end
  if #held > 0 then
    redis.call('HSET', mine, 'r:' .. args[3], cmsgpack.pack(held))
  end
  for i, state in ipairs(states) do
    states[i] = told(state)
  end
  return {all, granted, states}
end

-- {sequence, rows, ends, debts}: an end is {id, undone, {{row, amounts, picos}, ...}}, a debt {row, amounts, picos}.
-- → states, none if it was settled before. Amounts are by unit from 0. What is no longer held, for this server forgot
-- or gave it back, is charged alone.
function steps.settle()
  local settled = tonumber(redis.call('HGET', mine, 'settled')) or 0
  if args[3] <= settled then
    return {}
  end
  local states = {}
  for i, row in ipairs(args[4]) do
    states[i] = read(KEYS[2 + i], row)
  end
  local function charge(part, held, undone)
    local state, amounts = states[part[1]], part[2]
    local reserved, spend = {}, held and held[3]
    for _, rate in ipairs(held and held[2] or {}) do
      reserved[rate[1]] = rate[2]
    end
    for j, rate in ipairs(state.row[3]) do
      local unit, used = rate[1], amounts[rate[1] + 1]
      if unit == 0 and held then
        used = undone and 0 or 1
      end
      state.levels[j] = math.min(rate[2], state.levels[j] + (reserved[unit] or 0) - used)
    end
    if state.row[4] and (not spend or spend[2] == state.window) then
      state.used = math.max(0, state.used + part[3] - (spend and spend[3] or 0))
    end
    if held then
      state.n = math.max(0, state.n - 1)
    end
  end
  for _, done in ipairs(args[5]) do
    local field = 'r:' .. done[1]
    local held = redis.call('HGET', mine, field)
    held = held and cmsgpack.unpack(held)
    for j, part in ipairs(done[3]) do
      charge(part, held and held[j], done[2])
    end
    redis.call('HDEL', mine, field)
  end
  for _, part in ipairs(args[6]) do
    charge(part)
  end
  for _, state in ipairs(states) do
    write(state)
  end
  redis.call('HSET', mine, 'settled', args[3])
  for i, state in ipairs(states) do
    states[i] = told(state)
  end
  return states
end

-- {rows, slots}: n is what is wanted of each unit, below 0 to give back; slots is how many requests at once this
-- gateway wants to be good for, or false. → states, grants {rates, spend, slots} of each row.
function steps.lease()
  local states, grants = {}, {}
  for i, row in ipairs(args[3]) do
    local state = read(KEYS[2 + i], row)
    local rates, spend, slots = {}, false, false
    for j, rate in ipairs(row[3]) do
      rates[j] = math.max(math.min(rate[4], state.levels[j]), math.min(rate[4], 0))
      state.levels[j] = math.min(rate[2], state.levels[j] - rates[j])
    end
    if row[4] then
      spend = math.max(math.min(row[4][4], row[4][2] - state.used), math.min(row[4][4], 0))
      state.used = math.max(0, state.used + spend)
    end
    if args[4][i] then
      local field = 's:' .. state.key
      local had = tonumber(redis.call('HGET', mine, field)) or 0
      local more = args[4][i] - had
      if more > 0 then
        more = math.max(0, math.min(more, row[2] - state.n))
      end
      slots, state.n = had + more, math.max(0, state.n + more)
      redis.call('HSET', mine, field, text(slots))
    end
    write(state)
    states[i], grants[i] = told(state), {rates, spend, slots}
  end
  return {states, grants}
end

if ARGV[1] ~= 'hello' and redis.call('HGET', mine, 'generation') ~= tostring(generation) then
  return cmsgpack.pack({false}) -- from before a new beginning: whatever it was, it counts no more
end
return cmsgpack.pack({true, steps[ARGV[1]]()})
