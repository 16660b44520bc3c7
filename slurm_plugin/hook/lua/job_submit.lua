-- For sites without a job_submit.lua of their own; others add the lines between the functions and the final return.

function slurm_job_submit(job_desc, part_list, submit_uid)
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

-- Place fairgpu.lua on Lua's path, for example in /usr/local/share/lua/5.1/.
local ok, fairgpu = pcall(require, "fairgpu")
if ok then ok, fairgpu = pcall(fairgpu.wrap, {socket = "/run/fairgpu/hook.sock"}) end
if not ok then slurm.log_error("%s", "fairgpu: not loaded: " .. tostring(fairgpu)) end

return slurm.SUCCESS
