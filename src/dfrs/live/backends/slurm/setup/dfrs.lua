-- Jobs of a partition for which dfrs decides: held when they are submitted, whatever else they say.
--
-- Loaded by job_submit.lua, with the partition's name and the users who may start jobs there: dfrs, and administrators.
-- What users say of a job is in its comment:
--
--   sbatch --comment "dfrs: cpu=0.5 min-yield=0.2; anything else" ...
--
-- The word "held" there says that its user wants it held: --hold, scontrol hold and scontrol release keep it so.

local settings = ...
local UNSET = 4294967294
local UNSET_16 = 65534
local M = {}

local steers = {}
for _, user in ipairs(settings.users) do steers[user] = true end

-- What a comment says before ";", and what comes after it; nil if it says nothing to dfrs.
local function split(comment)
  local said, rest = (comment or ""):match("^%s*dfrs:([^;]*)(.*)$")
  return said, rest
end

local function number(text)
  return (text:match("^%d+$") or text:match("^%d*%.%d+$")) and tonumber(text) or nil
end

-- Why a comment is refused; nil if it is not. cpus: those of the job, if they are known.
local function fault(comment, cpus)
  local said = split(comment)
  if not said then
    local word = (comment or ""):match("^%s*(%a+)")
    if word and word:lower() == "dfrs" then return 'must begin with "dfrs:"' end
    return nil
  end
  for word in said:gmatch("[^%s,]+") do
    local name, text = word:match("^([%a-]+)=(.*)$")
    local value = text and number(text)
    if name == "cpu" then
      if not value or value <= 0 then return word .. ": must be a number of cores above 0" end
      if cpus and value > cpus then return word .. ": must be at most the job's CPUs, " .. cpus end
    elseif name == "min-yield" then
      if not value or value > 1 then return word .. ": must be a number from 0 to 1" end
    elseif word ~= "held" then
      return word:sub(1, 40) .. ": must be cpu=CORES, min-yield=FRACTION or held"
    end
  end
  return nil
end

-- Slurm shows what is logged here to those who submit, not to those who change a job.
local function refuse(text)
  slurm.log_user("dfrs: %s", text)
  return slurm.ERROR
end

-- A comment that says that its job is held by its user, or no longer says so.
local function with_hold(comment, held)
  local said, rest = split(comment)
  if not said then
    if not held then return comment end
    said, rest = "", (comment or "") ~= "" and "; " .. comment or ""
  end
  local words = held and { "held" } or {}
  for word in said:gmatch("[^%s,]+") do
    if word ~= "held" then words[#words + 1] = word end
  end
  if #words == 0 then
    -- Slurm takes an empty comment for none that is to be set.
    return rest:match("^;%s*(.+)$") or "dfrs:"
  end
  return "dfrs: " .. table.concat(words, " ") .. rest
end

-- Whether a job of these partitions is one of ours; true and false if it may run in others, too.
local function ours(names, partitions)
  if not names or names == "" then
    for _, each in pairs(partitions) do
      if each.flag_default == 1 then names = each.name end
    end
  end
  local found, others = false, false
  for name in (names or ""):gmatch("[^,]+") do
    if name == settings.partition then found = true else others = true end
  end
  return found, others
end

local function cpus_of(job)
  local tasks, each = job.num_tasks, job.cpus_per_task
  if not tasks or tasks >= UNSET then tasks = 1 end
  if not each or each >= UNSET_16 then each = 1 end
  return tasks * each
end

function M.submit(job, partitions)
  local found, others = ours(job.partition, partitions)
  if not found then return slurm.SUCCESS end
  if others then
    return refuse("--partition=" .. job.partition .. ": must be one partition: dfrs decides for " .. settings.partition)
  end
  if job.min_nodes and job.min_nodes > 1 and job.min_nodes < UNSET then
    return refuse("--nodes=" .. job.min_nodes .. ": must be 1 in partition " .. settings.partition)
  end
  if job.max_nodes and job.max_nodes > 1 and job.max_nodes < UNSET then
    return refuse("--nodes: at most " .. job.max_nodes .. ": must be 1 in partition " .. settings.partition)
  end
  local wrong = fault(job.comment, cpus_of(job))
  if wrong then return refuse("--comment: " .. wrong) end
  if job.priority == 0 then job.comment = with_hold(job.comment, true) end
  job.priority = 0
  return slurm.SUCCESS
end

function M.modify(job, record, user)
  local here = record.partition == settings.partition
  local moves = job.partition and job.partition ~= record.partition
  if steers[user] or not (here or (moves and ours(job.partition, {}))) then return slurm.SUCCESS end
  -- It would start where nobody decides any more, or twice over. Who asks is told no more than the number says.
  if moves then return slurm.ESLURM_ACCESS_DENIED end
  local wrong = job.comment and fault(job.comment)
  if wrong then return refuse("comment: " .. wrong) end
  -- Whoever releases a job says that it may run; when it does is not theirs to say.
  if job.priority and job.priority ~= UNSET then
    job.comment = with_hold(job.comment or record.comment, job.priority == 0)
    job.priority = 0
  end
  return slurm.SUCCESS
end

return M
