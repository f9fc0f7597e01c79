import type { DesktopTargetRecord } from '../../storage/schema.ts';
import { firstText } from '../dispatch/first-text.ts';
import type { Link } from '../dispatch/link.ts';
import type { Payload } from '../socket/envelope.ts';
import { idOf, nameOf } from './identity.ts';

/** What a desktop tells of itself without being asked: where it works, and what its owner edits. */
export type Hint = 'workspace' | 'active_editor';

/** What is known of one socket. Nothing of it is shared with another socket, not even of the same device. */
interface Known {
  readonly link: Link;
  /** Its last status; a socket that never sent one is no target. */
  status?: Payload;
  /** Who it is, since its first status. */
  id: string;
  name: string;
  /** What it says it can do; empty for one that does not say. */
  tools: ReadonlySet<string>;
  hints: Partial<Record<Hint, Payload>>;
  /** Of the first status, and of the last message; epoch milliseconds. */
  connectedAt: number;
  lastSeenAt: number;
}

/** A desktop on a socket that may be sent commands (contract 07 §2.2). */
export type Target = Known & { status: Payload };

export interface TargetsParts {
  now(): number;
  /** Whether the socket's session may be sent commands now. */
  isEligible(link: Link): boolean;
}

export type Targets = ReturnType<typeof createTargets>;

const toolsIn = ({ advertised_tools: tools }: Payload): Set<string> | undefined =>
  Array.isArray(tools) ? new Set(tools.filter((tool) => typeof tool === 'string' && tool !== '')) : undefined;

const isTarget = (known: Known | undefined): known is Target => known?.status !== undefined;

/** The desktops that are connected: state of their sockets, and gone with them. */
export function createTargets({ now, isEligible }: TargetsParts) {
  const sockets = new Map<Link, Known>();

  function knownOf(link: Link): Known {
    let known = sockets.get(link);
    if (!known) {
      known = { link, id: '', name: '', tools: new Set(), hints: {}, connectedAt: now(), lastSeenAt: now() };
      sockets.set(link, known);
    }
    known.lastSeenAt = now();
    return known;
  }

  return {
    /** A status came: its sender is a target from the first on. */
    report(link: Link, status: Payload): Target {
      const known = knownOf(link);
      if (!known.status) {
        known.connectedAt = known.lastSeenAt;
        known.id = idOf(link.session.device, status, link.id);
      }
      known.name = nameOf(link.session.device, status, known.id);
      known.tools = toolsIn(status) ?? known.tools;
      return Object.assign(known, { status });
    },

    /** Keeps the newest of its kind. */
    hint(link: Link, kind: Hint, payload: Payload): void {
      knownOf(link).hints[kind] = payload;
    },

    /** The socket showed life. */
    seen(link: Link): void {
      const known = sockets.get(link);
      if (known) known.lastSeenAt = now();
    },

    /** Whether the socket has told anything of itself. */
    has: (link: Link): boolean => sockets.has(link),

    of(link: Link): Target | undefined {
      const known = sockets.get(link);
      return isTarget(known) ? known : undefined;
    },

    /** Those that may be sent commands now, the one heard last first. */
    list: (): Target[] =>
      [...sockets.values()]
        .filter(isTarget)
        .filter(({ link }) => isEligible(link))
        .sort((a, b) => b.lastSeenAt - a.lastSeenAt),

    /** The socket is gone. */
    remove(link: Link): Target | undefined {
      const target = this.of(link);
      sockets.delete(link);
      return target;
    },

    /** What is to be kept of a socket; undefined for one that said nothing. */
    record(link: Link): DesktopTargetRecord | undefined {
      const known = sockets.get(link);
      if (!known) return undefined;
      const { status = null, id, tools, hints, connectedAt, lastSeenAt } = known;
      return { status, id, tools: [...tools], hints, connected_at: connectedAt, last_seen_at: lastSeenAt };
    },

    /** Takes up a socket as it was before the process slept. */
    restore(link: Link, { status, id, tools, hints, connected_at, last_seen_at }: DesktopTargetRecord): void {
      sockets.set(link, {
        link,
        status: status ?? undefined,
        id,
        name: status ? nameOf(link.session.device, status, id) : '',
        tools: new Set(tools),
        hints,
        connectedAt: connected_at,
        lastSeenAt: last_seen_at,
      });
    },
  };
}

/** What a selector may call a desktop. */
export const namesOf = ({ id, name, status }: Target): string[] =>
  [id, name, firstText(status, ['device_name']), firstText(status, ['host'])].filter((text) => text !== undefined);
