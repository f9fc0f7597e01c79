/** Answers of the operator's routes, as far as the console reads them. */

/** `GET /health` (contract 01 §2). */
export interface Health {
  version: string;
  clients: number;
  sessions: number;
  readiness: { ready: boolean; state: string; checks: { session_store: string } };
  secure_link: {
    enabled: boolean;
    status: string;
    reason?: string;
    reach: { enabled: boolean; connected: boolean; last_error?: string | null };
  };
}

/** `GET /relay/info` (contract 01 §8.1). */
export interface Info {
  version: string;
  capabilities: string[];
  profiles: { name: string; relay_state: string }[];
  uptime_seconds: number;
  gateway_heartbeat: { status: string; supported: boolean; age_seconds?: number };
  /** Addresses that the machine no longer has, and the devices that know no other (contract 11 §2). */
  gone_addresses?: unknown;
  /** While the relay is frozen (contract 09 §3). */
  freeze?: unknown;
}

/** `GET /relay/mirror` (contract 12 §7); at the edge `url` is null. `since` is epoch seconds. */
export interface MirrorAnswer {
  enabled: boolean;
  url: string | null;
  link: 'up' | 'down';
  since: number | null;
  waiting: { out: number };
}

/** A connection of a device (contract 09 §2). `since` is epoch seconds. */
export interface ConnectionRow {
  id: string;
  since: number;
  client_surface: string;
  route: 'direct' | 'secure_link' | 'reach' | 'ingress' | 'edge';
  last_seen_ms: number;
  rtt_ms: number | null;
  proof_age_ms: number;
  stale: boolean;
  channels: {
    terminal?: { shells: number };
    bridge?: { in_flight: number; last_answer_ms: number | null };
    proactive?: { subscribed: boolean; mirror: boolean };
    tui?: { attached: boolean };
    chat?: { streams: number };
    desktop?: { tools: string[] };
  };
}

/** A session that ended, of `GET /sessions/ended` (contract 11 §2). */
export interface EndedRow {
  token_prefix: string;
  device_name: string;
  /** Epoch seconds. */
  ended_at: number;
  reason: string;
}

/** A row of `GET /relay/devices`. Times are epoch seconds, null is never. */
export interface DeviceRow {
  token_prefix: string;
  device_name: string;
  device_id: string;
  created_at: number;
  last_seen: number;
  expires_at: number | null;
  ends_soon?: boolean;
  grants: Record<string, number | null>;
  client_surface: string;
  device_model: string;
  device_platform: string;
  connections: ConnectionRow[];
}

/** `GET /pairing/pending` (contract 09 §4). Codes are masked; `expires_at` is epoch seconds. */
export interface Pending {
  codes: {
    masked: string;
    expires_at: number;
    transport_hint: string | null;
    grants: Record<string, number> | null;
    without: string[];
    anonymous: boolean;
  }[];
  requests: { masked: string; expires_at: number; peer: string }[];
}

/** One route to the relay (contract 01 §5.4), as far as it is shown. */
export interface RouteRow {
  role: string;
  relay?: { url: string };
  proxy?: { url: string };
  broker?: { url: string };
}

/** `GET /pairing/routes`. `local`: the relay listens for its own machine only. */
export interface PairingRoutes {
  endpoints: RouteRow[];
  local: boolean;
}

/** `POST /pairing/mint`, as far as it is shown. `qr_payload` may contain the API key of the agent. */
export interface Minted {
  code: string;
  qr_payload: string;
  pairing_url: string;
  expires_at: number;
  relay_url: string;
  /** The agent's API server; absent if it is disabled. */
  host?: string;
  port?: number;
  tls?: boolean;
  endpoints?: RouteRow[];
}

/** The caller that an operation was carried out for (contract 09 §9). */
export interface ActorRecord {
  kind: 'operator' | 'session' | 'mcp' | 'voice';
  name: string;
  /** Prefix of the session. */
  prefix?: string;
}

/** A command for a phone, or a call of a desktop's tool. `sent_at` is epoch milliseconds. */
export interface Activity {
  request_id: string;
  /** `POST /tap`, or the name of a tool. */
  what: string;
  params: Record<string, unknown>;
  sent_at: number;
  response_status: number | null;
  result_summary: string | null;
  error: string | null;
  decision: 'pending' | 'executed' | 'blocked' | 'confirmed' | 'timeout' | 'error' | 'frozen';
  device_name: string | null;
  device_id: string | null;
  /** The sender (contract 09 §9); absent in records of older versions. */
  actor?: ActorRecord;
}

type Outcome = Omit<Activity, 'what' | 'params'>;

/** A record of `GET /bridge/activity` (contract 03 §6). */
export type PhoneCommand = Outcome & { method: string; path: string; params: Record<string, unknown> };

/** A record of `GET /desktop/activity` (contract 09 §9). */
export type DesktopCommand = Outcome & { tool: string; args: Record<string, unknown> };

/** `GET /bridge/devices` (contract 03 §6). */
export interface BridgeDevices {
  active_device_id: string | null;
  devices: { device_id: string; device_name: string; active: boolean; last_seen_seconds_ago: number | null }[];
}

/** `GET /phone/outbound` (contract 04 §5.6). `sent_at` is epoch milliseconds. */
export interface Outbound {
  queued: number;
  messages: { message_id: string; chat_id: string; text: string; sent_at: number }[];
}

/** An item of `GET /phone/history` (contract 09 §1). `ts` is epoch milliseconds. */
export interface HistoryItem {
  seq: number;
  kind: 'message' | 'reply';
  message_id: string;
  chat_id: string;
  title: string | null;
  text: string;
  ts: number;
  state: string;
  /** A question, with these answers to choose from (contract 09 §10). */
  question?: true;
  answers?: string[];
  /** Set if a reply came too late for its question. */
  late?: string;
}

/** A row of `GET /media/inspect` (contract 04 §3.10). Times are epoch seconds. */
export interface MediaRow {
  token: string;
  file_name: string;
  content_type: string;
  size: number | null;
  created_at: number;
  expires_at: number;
  last_accessed: number | null;
}

/** A line of `GET /relay/log`. `ts` is epoch seconds. */
export interface LogLine {
  ts: number;
  level: 'DEBUG' | 'INFO' | 'WARNING' | 'ERROR';
  name: string;
  text: string;
}

/** `GET /relay/security` (contract 01 §8.2). */
export interface Security {
  allow_insecure_api_bearer: boolean;
  trust_proxy_headers: boolean;
}

/** `GET /relay/update-check` (contract 01 §8.3). */
export interface Update {
  current: string;
  latest: string | null;
  update_available: boolean;
  update_command: string | null;
  error?: string;
}

/** `POST /relay/doctor` (contract 07 §5.2), as far as it is shown. */
export interface DoctorReport {
  groups: { title: string; checks: Finding[] }[];
}

/** A check, one per cause. Texts are in English, as printed by the command. */
export interface Finding {
  id: string;
  status: 'ok' | 'warn' | 'error';
  summary: string;
  /** The fix. */
  next?: string;
  /** Set if the check gave no result. */
  unknown?: true;
  /** Checks with the same cause. */
  covers?: string[];
}
