import type { DesktopDeviceRecord } from '../../storage/schema.ts';
import { firstString } from '../dispatch/first-string.ts';
import { type IsForeign, type Link, mayClaim } from '../dispatch/link.ts';
import { isObject, parseObject } from '../kit/json.ts';
import { visible } from '../kit/text.ts';
import type { AdvertisedTool } from '../operations/desktop.ts';
import type { Payload } from '../socket/envelope.ts';
import { idOf, nameOf } from './identity.ts';
import { isToolName } from './tools.ts';

/** Descriptions that a desktop sends besides its status: where it works, and what its owner edits. */
const HINTS = ['workspace', 'active_editor'] as const;
export type Hint = (typeof HINTS)[number];

/** State that one socket reported. Not shared with other sockets, not even of the same device. */
interface SocketState {
  readonly link: Link;
  /** Its last status; a socket that never sent one does not count as a device. */
  status?: Payload;
  /** Its identity, since its first status. */
  id: string;
  name: string;
  /** The tools that it advertises; empty if it advertises none. */
  tools: ReadonlySet<string>;
  hints: Partial<Record<Hint, Payload>>;
  /** Times of the first status and of the last message, epoch milliseconds. */
  connectedAt: number;
  lastSeenAt: number;
}

/** A desktop on a socket that may be sent commands (contract 07 §2.2). */
export type Device = SocketState & { status: Payload };

export interface RegistryDeps {
  now(): number;
  /** True if commands may be sent to the socket's session now. */
  isEligible(link: Link): boolean;
  /** True if an id belongs to a device of another session. */
  isForeign: IsForeign;
}

export type DesktopRegistry = ReturnType<typeof createDesktopRegistry>;

const MAX_TOOL_DESCRIPTION = 1024;

/** The tools in a status, by name or described (contract 09 §7), except those with an invalid name. */
export function describedTools({ advertised_tools: tools }: Payload): AdvertisedTool[] {
  return Array.isArray(tools) ? tools.map(describedTool).filter(({ name }) => isToolName(name)) : [];
}

function describedTool(tool: unknown): AdvertisedTool {
  if (!isObject(tool)) return { name: typeof tool === 'string' ? tool : '' };
  const { name, description, input_schema: schema } = tool;
  return {
    name: typeof name === 'string' ? name : '',
    ...(typeof description === 'string' && {
      description: visible(description).slice(0, MAX_TOOL_DESCRIPTION).toWellFormed(),
    }),
    ...(isObject(schema) && schema.type === 'object' && { inputSchema: schema }),
  };
}

const toolsIn = ({ advertised_tools: tools }: Payload): Set<string> | undefined =>
  Array.isArray(tools)
    ? new Set(tools.map((tool) => describedTool(tool).name).filter((name) => name !== ''))
    : undefined;

const isDevice = (state: SocketState | undefined): state is Device => state?.status !== undefined;

/** The connected desktops: the state of their sockets, dropped with them. */
export function createDesktopRegistry({ now, isEligible, isForeign }: RegistryDeps) {
  const sockets = new Map<Link, SocketState>();

  function stateOf(link: Link): SocketState {
    let state = sockets.get(link);
    if (!state) {
      state = { link, id: '', name: '', tools: new Set(), hints: {}, connectedAt: now(), lastSeenAt: now() };
      sockets.set(link, state);
    }
    state.lastSeenAt = now();
    return state;
  }

  function of(link: Link): Device | undefined {
    const state = sockets.get(link);
    return isDevice(state) ? state : undefined;
  }

  return {
    /** Handles a status: its sender is a device from the first one on. */
    report(link: Link, status: Payload): Device {
      const state = stateOf(link);
      if (!state.status) {
        state.connectedAt = state.lastSeenAt;
        state.id = idOf(link.session.device, status, link.id, (id) =>
          mayClaim(id, link, { devices: sockets.values(), isForeign }),
        );
      }
      state.name = nameOf(link.session.device, status, state.id);
      state.tools = toolsIn(status) ?? state.tools;
      return Object.assign(state, { status });
    },

    /** Keeps the newest hint of each kind. */
    hint(link: Link, kind: Hint, payload: Payload): void {
      stateOf(link).hints[kind] = payload;
    },

    /** The socket sent something. */
    seen(link: Link): void {
      const state = sockets.get(link);
      if (state) state.lastSeenAt = now();
    },

    /** True if the socket has described itself in any way. */
    has: (link: Link): boolean => sockets.has(link),

    of,

    /** Devices that may be sent commands now, the one heard last first. */
    list: (): Device[] =>
      [...sockets.values()]
        .filter(isDevice)
        .filter(({ link }) => isEligible(link))
        .sort((a, b) => b.lastSeenAt - a.lastSeenAt),

    /** The socket is gone. */
    remove(link: Link): Device | undefined {
      const device = of(link);
      sockets.delete(link);
      return device;
    },

    /** The stored form of a socket's state; undefined if it reported nothing. */
    record(link: Link): DesktopDeviceRecord | undefined {
      const state = sockets.get(link);
      if (!state) return undefined;
      const { status, id, tools, hints, connectedAt, lastSeenAt } = state;
      const texts = Object.entries(hints).map(([kind, payload]) => [kind, JSON.stringify(payload)]);
      return {
        status: status ? JSON.stringify(status) : null,
        id,
        tools: [...tools],
        hints: Object.fromEntries(texts),
        connected_at: connectedAt,
        last_seen_at: lastSeenAt,
      };
    },

    /** Restores a socket as it was before the process slept. */
    restore(link: Link, record: DesktopDeviceRecord): void {
      const status = (record.status !== null && parseObject(record.status)) || undefined;
      const hints: SocketState['hints'] = {};
      for (const kind of HINTS) {
        const payload = parseObject(record.hints[kind] ?? '');
        if (payload) hints[kind] = payload;
      }
      sockets.set(link, {
        link,
        status,
        id: record.id,
        name: status ? nameOf(link.session.device, status, record.id) : '',
        tools: new Set(record.tools),
        hints,
        connectedAt: record.connected_at,
        lastSeenAt: record.last_seen_at,
      });
    },
  };
}

/** The names that a selector may use for a desktop. */
export const namesOf = ({ id, name, status }: Device): string[] =>
  [id, name, firstString(status, ['device_name']), firstString(status, ['host'])].filter((text) => text !== undefined);
