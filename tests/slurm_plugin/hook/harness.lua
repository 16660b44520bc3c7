-- Plays slurmctld's part for fairgpu.lua: lua5.1 harness.lua SHIM_DIRECTORY SOCKET, the script comes on stdin.
-- Each call prints one line: rc, milliseconds, the fields that were set, what the user and the log were told.

local directory, path = arg[1], arg[2]
package.path = directory .. "/?.lua;" .. package.path
local clock = require("socket").gettime
socket_path = path
told, logged = {}, {}

local function formatted(list)
  -- As Slurm does it: string.format raises on a missing or nil argument.
  return function(...) list[#list + 1] = string.format(...) end
end

slurm = {SUCCESS = 0, ERROR = -1, log_user = formatted(told), log_info = formatted(logged),
  log_error = formatted(logged)}

local function watched(fields)
  local set = {}
  local desc = setmetatable({}, {__index = fields, __newindex = function(_, name, value)
    set[#set + 1] = name .. "=" .. tostring(value)
  end})
  return desc, set
end

local function line(rc, began, set)
  local ms = (clock() - began) * 1000
  print(table.concat({tostring(rc), string.format("%.1f", ms), table.concat(set, " "),
    table.concat(told, " "), table.concat(logged, " ")}, "\t"))
  for n = #told, 1, -1 do told[n] = nil end
  for n = #logged, 1, -1 do logged[n] = nil end
end

function job(extra)
  local fields = {user_id = 1000, account = "rec", partition = "gpu", min_nodes = 4294967294, num_tasks = 1,
    cpus_per_task = 65534, priority = 4294967294, begin_time = 0, site_factor = 4294967294}
  for name, value in pairs(extra or {}) do fields[name] = value end
  return fields
end

function submit(fields, part_list)
  local desc, set = watched(fields)
  local began = clock()
  line(slurm_job_submit(desc, part_list or {}, 1000), began, set)
end

function modify(fields, record, uid)
  local desc, set = watched(fields)
  local began = clock()
  line(slurm_job_modify(desc, record, {}, uid), began, set)
end

function wrap(options)
  options = options or {}
  options.socket = options.socket or socket_path
  require("fairgpu").wrap(options)
end

function sleep(seconds) require("socket").sleep(seconds) end

assert(loadstring(io.read("*a"), "test"))()
