-- FairGPU's shim inside slurmctld: asks the hook server about a submission and applies its answer.
--
-- It knows no policy. On any doubt (no server, late, a damaged answer) the job passes unchanged, and after a few
-- failures in a row it stops asking for a while. Runs on Lua 5.1 to 5.4 with luasocket.
-- Use: docs/reference/hook.md. Bytes: docs/reference/wire-protocol.md.

local M = {}

local SUCCESS = 0
local ACCESS_DENIED = 2002       -- ESLURM_ACCESS_DENIED; the name exists in Lua from 23.02 on only
local NO_VAL = 4294967294        -- this and larger numbers mean "not set"
local MAX_TEXT = 65540           -- bytes of a field that are sent: at least 16385 characters, more than are read
local MAX_REPLY = 16384          -- bytes of an answer's body
local MAX_MESSAGE = 1000
local MAX_FACTOR = 2147483645    -- largest site factor that Slurm takes
local MAX_QOS = 255              -- bytes of a QOS's name

local DEFAULTS = {
  socket = "/run/fairgpu/hook.sock",
  deadline_ms = 20,              -- for connect, send and receive together
  failures = 3,                  -- in a row, then the breaker opens
  pause_s = 10,                  -- for this long
  uids = {},                     -- whose job updates pass at once: SlurmUser and FairGPU's own user; root always does
}

local TEXTS = {"comment", "wckey", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket",
  "array_inx", "dependency"}
local NUMBERS = {"min_nodes", "num_tasks", "cpus_per_task", "min_cpus", "min_mem_per_node", "min_mem_per_cpu",
  "sockets_per_node", "priority", "begin_time"}

-- Frames ------------------------------------------------------------------------------------------------------

local function netstring(text)
  return #text .. ":" .. text .. ","
end

local function add(parts, name, value)
  if type(value) == "string" and value ~= "" then
    parts[#parts + 1] = netstring(name) .. netstring(value:sub(1, MAX_TEXT))
  elseif type(value) == "number" and value >= 0 and value < NO_VAL then
    parts[#parts + 1] = netstring(name) .. netstring(string.format("%.0f", value))
  end
end

function M.frame(op, parts)
  local body = table.concat(parts)
  return string.format("FG1%s%08d", op, #body) .. body
end

-- Fields of an answer's body, or nil if any byte is out of place.
function M.parse_body(body)
  local fields, at = {}, 1
  local function take()
    local digits, start = body:match("^(%d+):()", at)
    if not digits or #digits > 6 then return nil end
    local stop = start + tonumber(digits)
    if body:sub(stop, stop) ~= "," then return nil end
    at = stop + 1
    return body:sub(start, stop - 1)
  end
  while at <= #body do
    local name = take()
    local value = name and take()
    if not value or fields[name] then return nil end
    fields[name] = value
  end
  return fields
end

-- What the answer says, checked as a whole before anything is applied; nil if it cannot be used.
function M.check_answer(fields)
  local verdict = fields and fields.verdict
  if verdict ~= "accept" and verdict ~= "reject" and verdict ~= "unchanged" then return nil end
  local answer = {verdict = verdict}
  if fields.site_factor then
    if verdict ~= "accept" or not fields.site_factor:match("^%d%d?%d?%d?%d?%d?%d?%d?%d?%d?$") then return nil end
    answer.site_factor = tonumber(fields.site_factor)
    if answer.site_factor < 1 or answer.site_factor > MAX_FACTOR then return nil end
  end
  if fields.qos then
    if verdict ~= "accept" or #fields.qos > MAX_QOS or not fields.qos:match("^[a-z0-9_.-]+$") then return nil end
    answer.qos = fields.qos
  end
  if fields.user_msg then
    answer.message = fields.user_msg:sub(1, MAX_MESSAGE):gsub("[^\32-\126]", "?")
  end
  return answer
end

-- One question, one answer --------------------------------------------------------------------------------------

local function new_socket()
  local unix = require("socket.unix")
  if type(unix) == "table" and unix.stream then return unix.stream() end
  return unix()
end

-- Errors are strings: the reason why there is no answer. Every wait takes from one budget.
local function exchange(connection, options, request, now)
  local deadline = now() + options.deadline_ms / 1000
  local function budget()
    local left = deadline - now()
    if left <= 0 then error("late", 0) end
    connection:settimeout(left, "t")
  end
  local function check(result, reason)
    if not result then error(tostring(reason), 0) end
    return result
  end
  budget()
  check(connection:connect(options.socket))
  budget()
  check(connection:send(request))
  budget()
  local header = check(connection:receive(12))
  local length = tonumber(header:match("^FG1R(%d%d%d%d%d%d%d%d)$") or MAX_REPLY + 1)
  if length > MAX_REPLY then error("not an answer", 0) end
  local body = ""
  if length > 0 then
    budget()
    body = check(connection:receive(length))
  end
  return check(M.check_answer(M.parse_body(body)), "an answer that makes no sense")
end

local function log(text)
  if slurm and slurm.log_info then pcall(slurm.log_info, "%s", "fairgpu: " .. tostring(text)) end
end

-- Asks the server unless the breaker is open; nil without a usable answer. Never raises.
local function new_client(options)
  local socket = require("socket")
  local client = {failed = 0, open_until = 0}
  function client.ask(request)
    local now = socket.gettime()
    -- A clock that was set back does not keep the breaker open for longer than one pause.
    if now < client.open_until and client.open_until - now <= options.pause_s then return nil end
    local connection = new_socket()
    local ok, answer = pcall(exchange, connection, options, request, socket.gettime)
    pcall(connection.close, connection)
    if ok then
      if client.failed >= options.failures then log("the hook server answers again") end
      client.failed = 0
      return answer
    end
    client.failed = client.failed + 1
    if client.failed >= options.failures then
      client.open_until = socket.gettime() + options.pause_s
    end
    if client.failed <= options.failures then
      log("no answer (" .. tostring(answer) .. "), the job passes unchanged")
    end
    return nil
  end
  return client
end

-- Submissions and updates ---------------------------------------------------------------------------------------

local function default_partition(part_list)
  for name, partition in pairs(part_list or {}) do
    if partition.flag_default == 1 then return name end
  end
  return nil
end

local function tell(message)
  if not message then return end
  if slurm.log_user then slurm.log_user("%s", message) elseif slurm.user_msg then slurm.user_msg(message) end
end

local function conclude(answer)
  pcall(tell, answer.message)
  if answer.verdict == "reject" then return ACCESS_DENIED end
  return SUCCESS
end

-- Only a job that names a QOS can name one of ours. Its script may be long, so it is looked at only then.
local function add_band(parts, qos, requeue, of)
  if type(qos) ~= "string" or qos == "" then return end
  add(parts, "qos", qos)
  add(parts, "requeue", requeue)
  add(parts, "batch", of.script and 1 or 0)
end

local function on_submit(client, job_desc, part_list, submit_uid)
  local parts = {}
  add(parts, "uid", job_desc.user_id or submit_uid)
  add(parts, "account", job_desc.account or job_desc.default_account)
  add(parts, "partition", job_desc.partition or default_partition(part_list))
  for _, name in ipairs(TEXTS) do add(parts, name, job_desc[name]) end
  for _, name in ipairs(NUMBERS) do add(parts, name, job_desc[name]) end
  add_band(parts, job_desc.qos, job_desc.requeue, job_desc)
  local answer = client.ask(M.frame("S", parts))
  if not answer then return SUCCESS end
  if answer.site_factor then job_desc.site_factor = answer.site_factor end
  if answer.qos then job_desc.qos = answer.qos end
  return conclude(answer)
end

local function is_changed(new, old)
  return type(new) == "string" and new ~= (old or "")
end

-- Only a user's change of the text that carries the tag, of the QOS, or to "no requeue" is asked about. The job's
-- owner is whom the tag serves.
local function on_modify(client, job_desc, job_rec, modify_uid)
  local is_tag = is_changed(job_desc.comment, job_rec.comment) or is_changed(job_desc.wckey, job_rec.wckey)
  local is_moved = is_changed(job_desc.qos, job_rec.qos)
  local is_band = is_moved or job_desc.requeue == 0
  if not is_tag and not is_band then return SUCCESS end
  local parts = {}
  add(parts, "uid", job_rec.user_id)
  add(parts, "by", modify_uid)
  for _, name in ipairs({"account", "partition", "comment", "wckey"}) do
    add(parts, name, job_desc[name] or job_rec[name])
  end
  if is_band then
    local requeue = job_desc.requeue
    if requeue ~= 0 and requeue ~= 1 then requeue = job_rec.requeue end
    add_band(parts, job_desc.qos or job_rec.qos, requeue, job_rec)
    add(parts, "moved", is_moved and 1 or 0)
  end
  local answer = client.ask(M.frame("M", parts))
  return answer and conclude(answer) or SUCCESS
end

-- Ours runs only where the site's function accepted; whatever goes wrong in ours, the site's result stands.
local function after(site, ours)
  return function(...)
    local result = SUCCESS
    if site then result = site(...) end
    if type(result) == "number" and result ~= SUCCESS then return result end
    local ok, verdict = pcall(ours, ...)
    if not ok then log(verdict) end
    return ok and verdict == ACCESS_DENIED and verdict or SUCCESS
  end
end

-- Wraps the script's two functions: the last line of the site's job_submit.lua, inside pcall.
function M.wrap(given)
  local options = {}
  for name, value in pairs(DEFAULTS) do options[name] = value end
  for name, value in pairs(given or {}) do options[name] = value end
  local client = new_client(options)
  local trusted = {[0] = true}
  for _, uid in ipairs(options.uids) do trusted[uid] = true end

  slurm_job_submit = after(slurm_job_submit, function(job_desc, part_list, submit_uid)
    return on_submit(client, job_desc, part_list, submit_uid)
  end)
  slurm_job_modify = after(slurm_job_modify, function(job_desc, job_rec, _, modify_uid)
    if trusted[modify_uid] then return SUCCESS end
    return on_modify(client, job_desc, job_rec, modify_uid)
  end)
end

return M
