-- loam.lua - the words of a policy, for editors with lua-language-server.
--
-- In .luarc.json: "workspace.library": ["/usr/local/share/loam/policies/editor"]. A test compares
-- the names with those of the language.
---@meta

---@class loam.strategy a description of memory
local strategy = {}

---Serves from `other` where this strategy cannot serve.
---@param other loam.strategy
---@return loam.strategy
function strategy:or_else(other) end

---@class loam.text a string of the request; a policy can only ask about it
local text = {}

---True for the name itself and for all names below it: "a.b" and "a.b.c".
---@param name string
---@return boolean
function text:under(name) end

---True for this name alone.
---@param name string
---@return boolean
function text:is(name) end

---`*` stands for any characters, `?` for one.
---@param pattern string
---@return boolean
function text:glob(pattern) end

---The part with a number, counted from 1; nil where there is none.
---@param index integer
---@return string?
function text:part(index) end

---@class loam.request
---@field tag loam.text|string what the memory is for
---@field file loam.text|string the source file of the call; "" where it is not known
---@field func loam.text|string the function of the call; "" where it is not known
---@field module loam.text|string the program or library of the call; "" where it is not known
---@field line integer the line of the call; 0 where it is not known
---@field size integer bytes asked for
---@field align integer alignment asked for, 16 at least
---@field zero boolean whether the memory must be zeroed
---@field node integer NUMA node of the CPU that the caller runs on
---@field device integer current CUDA device; -1: none
---@field live integer bytes live under the tag

---@class loam.test: { [string]: any } a request, and the strategy to expect
---@field size integer
---@field expect loam.strategy

---@class loam.policy_fields
---@field name? string the name that `loam status` shows
---@field pick fun(req: loam.request): loam.strategy
---@field tests? loam.test[] requests that are tried before the policy goes live
---@field always? table<string, fun(req: loam.request, got: loam.strategy): boolean> invariants
---@field apply? "new"|"live" "live": a reload also moves live memory

---@class loam.weights
---@field weights table<integer, integer> by node, 1 to 255

---A string names nodes as numactl(8) does: "0-3", "0,2", "!1", "+0", "all".
---@alias loam.numa
---| integer
---| integer[]
---| "local"
---| "interleave"
---| "all"
---| string
---| { prefer: integer|string }
---| loam.weights

---@class loam.options options of every constructor
---@field name? string
---@field limit? integer the most bytes that may be live at a time
---@field soft? integer bytes of live memory beyond which the host gets an event; needs `limit`
---@field shared? string name under which all processes of the user share the limit; needs `limit`

---@class loam.host_options: loam.options
---@field align? integer
---@field numa? loam.numa
---@field huge? false|"thp"|"2MiB"|"1GiB"
---@field zero? boolean
---@field prefault? boolean
---@field lock? boolean
---@field guard? boolean|integer

---@class loam.shared_options: loam.options
---@field align? integer
---@field numa? loam.numa
---@field huge? false|"thp"
---@field zero? boolean
---@field prefault? boolean
---@field lock? boolean

---@class loam.file_options: loam.options
---@field dir string the absolute path of a folder
---@field align? integer
---@field zero? boolean

---@class loam.device_options: loam.options
---@field id? integer|"current"
---@field pool? "cache"|"chunks"|"driver"|"none"|"sleep" "sleep": it can be given up

---@class loam.managed_options: loam.options
---@field id? integer|"current"
---@field prefer? integer|"current"

---@class loam.pinned_options: loam.options
---@field mapped? boolean
---@field portable? boolean
---@field write_combined? boolean
---@field numa? loam.numa

---@class loam.place a node or a device; `free` can be read inside `pick` only
---@field free integer free bytes, at most 100 ms old
---@field total integer bytes of memory; of nodes alone
---@field cpus boolean false for a node of memory alone; of nodes alone

loam = {}
loam.KiB = 2 ^ 10
loam.MiB = 2 ^ 20
loam.GiB = 2 ^ 30
loam.TiB = 2 ^ 40

---The policy; a file ends with `return loam.policy { ... }`.
---@param fields loam.policy_fields
function loam.policy(fields) end

---Memory of loam's own pools.
---@param options? loam.host_options
---@return loam.strategy
function loam.host(options) end

---The malloc of the host program.
---@param options? loam.options
---@return loam.strategy
function loam.system(options) end

---Pages that other processes can open.
---@param options? loam.shared_options
---@return loam.strategy
function loam.shared(options) end

---A file without a name on a disk.
---@param options loam.file_options
---@return loam.strategy
function loam.file(options) end

---A handler that the host registered.
---@param name string|{ [1]: string, name: string?, limit: integer? }
---@return loam.strategy
function loam.handler(name) end

---No memory: the request fails and is counted.
---@param options? loam.options
---@return loam.strategy
function loam.deny(options) end

---Memory of a GPU; with a number, the device itself.
---@param options? loam.device_options
---@return loam.strategy
---@overload fun(n: integer): loam.place
function loam.device(options) end

---Memory that moves between CPU and GPU as they use it.
---@param options? loam.managed_options
---@return loam.strategy
function loam.managed(options) end

---Memory of the host that GPUs copy from and to.
---@param options? loam.pinned_options
---@return loam.strategy
function loam.pinned(options) end

---The numbers of this machine's NUMA nodes.
---@return integer[]
function loam.nodes() end

---The numbers of this machine's devices.
---@return integer[]
function loam.devices() end

---@param n integer
---@return loam.place
function loam.node(n) end

---The percentage of the last ten seconds in which tasks of the program's control group waited for
---memory, 0 to 100; inside `pick` only.
---@return integer
function loam.pressure() end
