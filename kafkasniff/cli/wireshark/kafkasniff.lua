-- The walker of the definitions above: decodes TCP payload of Kafka, in every version, for Wireshark and tshark.

local kafka = Proto("kafkasniff", "Kafka (kafkasniff)")

local MAX_FRAME = 104857600 -- socket.request.max.bytes
local SIZES = {bool = 1, int8 = 1, int16 = 2, error = 2, uint16 = 2, int32 = 4, uint32 = 4, int64 = 8, float64 = 8,
               uuid = 16}
local MAKERS = {bool = ProtoField.bool, int8 = ProtoField.int8, int16 = ProtoField.int16, error = ProtoField.int16,
                uint16 = ProtoField.uint16, int32 = ProtoField.int32, uint32 = ProtoField.uint32,
                int64 = ProtoField.int64, float64 = ProtoField.double, uuid = ProtoField.guid,
                string = ProtoField.string, bytes = ProtoField.bytes, records = ProtoField.bytes}
local NAMED = {int8 = true, int16 = true, error = true, uint16 = true, int32 = true, uint32 = true}

local api_names = {}
for key, api in pairs(APIS) do api_names[key] = api.name end

local F = {
   size = ProtoField.uint32("kafkasniff.size", "size"),
   api_key = ProtoField.int16("kafkasniff.api_key", "api_key", base.DEC, api_names),
   api_version = ProtoField.int16("kafkasniff.api_version", "api_version"),
   correlation_id = ProtoField.int32("kafkasniff.correlation_id", "correlation_id"),
   client_id = ProtoField.string("kafkasniff.client_id", "client_id"),
   request_in = ProtoField.framenum("kafkasniff.request_in", "request in", base.NONE, frametype.REQUEST),
   latency = ProtoField.relative_time("kafkasniff.latency", "latency"),
}
local malformed = ProtoExpert.new("kafkasniff.malformed", "malformed", expert.group.MALFORMED, expert.severity.ERROR)
kafka.experts = {malformed}

-- A field of Wireshark for each name, and for each other type that it has.
local registered, by_name = {}, {}
for _, field in pairs(F) do registered[#registered + 1] = field end

local function register(fields)
   for _, field in ipairs(fields) do
      if field.fields then
         register(field.fields)
      else
         local name, make = field.name, MAKERS[field.type]
         local key = name .. ":" .. field.type .. ":" .. (field.enum or "")
         if not by_name[key] then
            local filter = "kafkasniff." .. name
            if F[name] or by_name[name] then filter = filter .. "." .. field.type end
            if by_name[filter] then filter = filter .. "." .. (field.enum or "plain") end
            by_name[name], by_name[filter] = true, true
            local values = field.type == "error" and ERRORS or ENUMS[field.enum or ""]
            if values and NAMED[field.type] then
               by_name[key] = make(filter, name, base.DEC, values)
            else
               by_name[key] = make(filter, name)
            end
            registered[#registered + 1] = by_name[key]
         end
         field.proto = by_name[key]
      end
   end
end
for _, api in pairs(APIS) do
   register(api.request.fields)
   register(api.response.fields)
end
kafka.fields = registered

-- Reading. A cursor has a buffer, the next offset and the end; a failure is an error with a text.

local function take(cursor, size)
   if size < 0 or cursor.at + size > cursor.stop then error("ends in mid-field", 0) end
   local range = cursor.tvb(cursor.at, size)
   cursor.at = cursor.at + size
   return range
end

local function varint(cursor)
   local value, scale = 0, 1
   for _ = 1, 5 do
      local byte = take(cursor, 1):uint()
      value = value + (byte % 128) * scale
      if byte < 128 then return value end
      scale = scale * 128
   end
   error("a varint of more than 5 bytes", 0)
end

local function length(cursor, compact, short)
   if compact then return varint(cursor) - 1 end
   if short then return take(cursor, 2):int() end
   return take(cursor, 4):int()
end

local read_struct

local function read_value(field, cursor, flexible, out, name)
   local start = cursor.at
   local node = {label = name, at = start, field = field}
   if SIZES[field.type] then
      take(cursor, SIZES[field.type])
   else
      local size = length(cursor, flexible and not field.classic, field.type == "string")
      if size < -1 then error("a negative length", 0) end
      node.null = size == -1
      if size > 0 then node.range = take(cursor, size) end
   end
   node.size = cursor.at - start
   out[#out + 1] = node
end

local function read_inner(field, cursor, version, flexible, out, name)
   local node = {label = name, at = cursor.at}
   out[#out + 1] = node
   read_struct(field.fields, cursor, version, flexible, node)
   node.size = cursor.at - node.at
end

local function read_field(field, cursor, version, flexible, out)
   local compact = flexible and not field.classic
   if field.array then
      local node = {label = field.name, at = cursor.at}
      out[#out + 1] = node
      local count = length(cursor, compact, false)
      node.null = count == -1
      if count < -1 or count > cursor.stop - cursor.at then error("more elements than bytes", 0) end
      for number = 1, count do
         local name = field.name .. "[" .. (number - 1) .. "]"
         if field.fields then
            read_inner(field, cursor, version, flexible, node, name)
         else
            read_value(field, cursor, flexible, node, name)
         end
      end
      node.size = cursor.at - node.at
   elseif field.fields then
      if field.nulls and version >= field.nulls[1] and version <= field.nulls[2] then
         local start, null = cursor.at, nil
         if field.tag then null = varint(cursor) == 0 else null = take(cursor, 1):int() < 0 end
         if null then
            out[#out + 1] = {label = field.name, at = start, size = cursor.at - start, null = true}
            return
         end
      end
      read_inner(field, cursor, version, flexible, out, field.name)
   else
      read_value(field, cursor, flexible, out, field.name)
   end
end

local function read_tags(fields, cursor, version, out)
   for _ = 1, varint(cursor) do
      local start = cursor.at
      local tag, size = varint(cursor), nil
      size = varint(cursor)
      local stop = cursor.at + size
      if stop > cursor.stop then error("a tagged field ends in mid-field", 0) end
      local known
      for _, field in ipairs(fields) do
         if field.tag == tag and version >= field.low and version <= field.high then known = field end
      end
      if known then
         read_field(known, {tvb = cursor.tvb, at = cursor.at, stop = stop}, version, true, out)
      else
         out[#out + 1] = {label = "tag " .. tag .. " (" .. size .. " bytes)", at = start, size = stop - start}
      end
      cursor.at = stop
   end
end

function read_struct(fields, cursor, version, flexible, out)
   for _, field in ipairs(fields) do
      if not field.tag and version >= field.low and version <= field.high then
         read_field(field, cursor, version, flexible, out)
      end
   end
   if flexible then read_tags(fields, cursor, version, out) end
end

local function header_of(message, version)
   local found
   for _, one in ipairs(message.headers) do
      found = found or one[2]
      if version >= one[1] then found = one[2] end
   end
   return found
end

-- The body of a message at a version: its nodes, and what is wrong, or nil.
local function body(message, tvb, at, version)
   local nodes = {}
   local cursor = {tvb = tvb, at = at, stop = tvb:len()}
   local flexible = version >= message.flexible
   local ok, problem = pcall(read_struct, message.fields, cursor, version, flexible, nodes)
   if ok then
      problem = cursor.at < cursor.stop and (cursor.stop - cursor.at) .. " bytes after its end" or nil
   elseif tvb:reported_len() > tvb:len() then
      problem = "truncated by the capture's snapshot length"
   end
   return nodes, problem
end

local function show(nodes, tvb, tree)
   for _, node in ipairs(nodes) do
      local range = tvb(node.at, node.size or tvb:len() - node.at)
      local item
      if node.null then
         item = tree:add(range, node.label .. ": null")
      elseif node.field then
         local value = node.field.proto
         if SIZES[node.field.type] then
            item = tree:add(value, range)
         elseif node.field.type == "string" then
            item = tree:add(value, range, node.range and node.range:string(ENC_UTF_8) or "")
         elseif node.range then
            item = tree:add(value, node.range)
         else
            item = tree:add(range, node.label .. ": empty")
         end
      else
         item = tree:add(range, node.label)
      end
      show(node, tvb, item)
   end
end

-- Pairing: requests of a connection by their correlation ids. Frames are dissected in order the first time.

local stream_of = Field.new("tcp.stream")
local streams, paired = {}, {}

function kafka.init() streams, paired = {}, {} end

local function stream()
   local number = stream_of().value
   streams[number] = streams[number] or {requests = {}}
   return streams[number]
end

-- Whether a buffer begins with the header of a request.
local function begins_request(tvb)
   if tvb:len() < 14 then return false end
   local size, api = tvb(0, 4):int(), APIS[tvb(4, 2):int()]
   if size < 10 or size > MAX_FRAME or not api then return false end
   local version, id = tvb(6, 2):int(), tvb(12, 2):int()
   return version >= api.low and version <= api.high and tvb(8, 4):int() >= -1 and id >= -1 and id <= size - 10
end

local function add_header(tree, tvb, field, at, size) return at + size, tree:add(F[field], tvb(at, size)) end

local function request(tvb, pinfo, tree, known)
   local key, version, id = tvb(4, 2):int(), tvb(6, 2):int(), tvb(8, 4):int()
   local api = APIS[key]
   if not pinfo.visited then
      known.requests[id] = {key = key, version = version, frame = pinfo.number, time = pinfo.abs_ts}
   end
   local at = 4
   for _, one in ipairs({{"api_key", 2}, {"api_version", 2}, {"correlation_id", 4}}) do
      at = add_header(tree, tvb, one[1], at, one[2])
   end
   local name = api and api.name or "API " .. key
   if not api or version < api.low or version > api.high then
      tree:append_text(", " .. name .. " v" .. version .. ", unknown")
      return name .. " v" .. version
   end
   local kind = header_of(api.request, version)
   if kind > 0 then
      local size = tvb(at, 2):int()
      if size > tvb:len() - at - 2 then
         tree:add_proto_expert_info(malformed, "the client id does not fit")
         return name
      end
      if size >= 0 then tree:add(F.client_id, tvb(at, 2 + size), tvb(at + 2, size):string(ENC_UTF_8)) end
      at = at + 2 + math.max(size, 0)
   end
   return name .. " v" .. version, api.request, version, at, kind > 1
end

local function moment(seconds)
   local whole = math.floor(seconds)
   return NSTime.new(whole, math.floor((seconds - whole) * 1e9))
end

local function response(tvb, pinfo, tree, known)
   local id = tvb(4, 4):int()
   add_header(tree, tvb, "correlation_id", 4, 4)
   local place = pinfo.number .. ":" .. id
   if not pinfo.visited then paired[place], known.requests[id] = known.requests[id], nil end
   local asked = paired[place]
   if not asked then
      tree:append_text(", its request is not in the capture")
      return "response"
   end
   tree:add(F.request_in, asked.frame):set_generated()
   tree:add(F.latency, moment(pinfo.abs_ts - asked.time)):set_generated()
   local api = APIS[asked.key]
   local name = (api and api.name or "API " .. asked.key) .. " v" .. asked.version
   if not api or asked.version < api.low or asked.version > api.high then return name end
   return name, api.response, asked.version, 8, header_of(api.response, asked.version) > 0
end

local function message(tvb, pinfo, root)
   local known = stream()
   local from = tostring(pinfo.src) .. ":" .. pinfo.src_port
   if not known.client then known.client = begins_request(tvb) and from or "" end
   local asks = known.client == from
   local tree = root:add(kafka, tvb())
   tree:add(F.size, tvb(0, 4))
   if tvb:len() < (asks and 12 or 8) then return tvb:len() end
   local name, definition, version, at, tags = (asks and request or response)(tvb, pinfo, tree, known)
   if definition then
      local nodes, problem
      if tags then
         local cursor = {tvb = tvb, at = at, stop = tvb:len()}
         local ok, wrong = pcall(read_tags, {}, cursor, version, {})
         at, problem = cursor.at, not ok and wrong or nil
      end
      if not problem then nodes, problem = body(definition, tvb, at, version) end
      if problem and not asks then
         -- A broker that does not know the version answers in the lowest one (KIP-511).
         local low, wrong = body(definition, tvb, 8, definition.low)
         if not wrong then nodes, problem = low, nil end
      end
      if nodes then show(nodes, tvb, tree) end
      if problem then tree:add_proto_expert_info(malformed, problem) end
   end
   tree:append_text(", " .. name .. (asks and " request" or " response"))
   pinfo.cols.protocol = "Kafka"
   local info = tostring(pinfo.cols.info)
   pinfo.cols.info = (known.shown == pinfo.number and info .. ", " or "") .. name .. (asks and " request" or " response")
   known.shown = pinfo.number
   return tvb:len()
end

function kafka.dissector(tvb, pinfo, tree)
   dissect_tcp_pdus(tvb, tree, 4, function(part, _, at)
      local size = part(at, 4):int()
      if size < 0 or size > MAX_FRAME then return part:len() - at end
      return size + 4
   end, message)
   return tvb:len()
end

kafka:register_heuristic("tcp", function(tvb, pinfo, tree)
   if not begins_request(tvb) then return false end
   pinfo.conversation = kafka
   kafka.dissector(tvb, pinfo, tree)
   return true
end)
DissectorTable.get("tcp.port"):add(9092, kafka)
