import * as v from 'valibot';
import { RelayError } from '../errors.ts';
import type { HangUp } from '../kit/event.ts';
import type { Session } from '../sessions/session.ts';
import type { JsonText } from '../web/json.ts';
import type { Actor } from './actor.ts';
import type { Operation } from './operation.ts';

/** Maximum tools in one list, since desktops decide how many they advertise. */
const MAX_TOOLS = 200;
const Input = v.record(v.string(), v.unknown());
/** Answered by the relay about desktops, rather than by a desktop. */
const HEALTH = 'desktop_health';
const READS = /_(?:read|get|list|search|screenshot|status|info|health)(?:_|$)/;

/** True if a tool only reads, judging by its name. */
export const isReadTool = (name: string): boolean => READS.test(name);

/** A tool as its desktop advertises it. */
export interface AdvertisedTool {
  name: string;
  description?: string;
  /** JSON schema of an object. */
  inputSchema?: Readonly<Record<string, unknown>>;
}

/** A call of a tool (contract 07 §2.3). */
export interface ToolCall {
  tool: string;
  /** Its arguments, including those that name the desktop. */
  args: Readonly<JsonText>;
  /** The query, which may name the desktop if the arguments do not. */
  query: Readonly<Record<string, string>>;
  /** The caller, and its run of an agent (contract 07 §2.4). */
  session: Session;
  run: { chatSession?: string; runId?: string; profile?: string };
  /** Aborts when the caller disconnects. */
  signal?: HangUp;
  actor: Actor;
}

/** The part of the desktop domain that operations use. */
export interface DesktopControl {
  offered(): AdvertisedTool[];
  /** True if a tool may have this name. */
  isTool(name: string): boolean;
  /** True if an answer says that the desktop refused or failed. */
  isRefused(json: string): boolean;
  call(call: ToolCall): Promise<string>;
}

/** The tools that connected desktops advertise, as operations (contract 09 §7). */
export function desktopOperations({ desktop }: { desktop: DesktopControl }) {
  const operationOf = ({ name, description, inputSchema }: AdvertisedTool) => {
    const isRead = isReadTool(name);
    const operation: Operation<Record<string, unknown>> = {
      name,
      title: titleOf(name),
      description: `${description ?? 'A tool of a connected desktop.'} \`device\` names the desktop where several are connected.`,
      grant: 'desktop',
      effect: isRead ? 'read' : 'act',
      hints: isRead ? {} : { destructive: true, openWorld: true },
      isGated: true,
      untrusted: true,
      input: Input,
      advertised: inputSchema ?? ANY_OBJECT,
      async run(args, { actor, signal }) {
        const { session, runId } = callerOf(actor);
        const text = JSON.stringify(args);
        const json = await desktop.call({
          tool: name,
          args: { text, value: args },
          query: {},
          session,
          run: { runId },
          signal,
          actor,
        });
        return desktop.isRefused(json) ? { json, failed: true } : { json };
      },
    };
    return operation as Operation;
  };

  return {
    list: (): Operation[] => desktop.offered().slice(0, MAX_TOOLS).map(operationOf),

    /** The operation of a tool, advertised or not; a call of an unavailable tool is refused with the reason. */
    get(name: string): Operation | undefined {
      if (!desktop.isTool(name) || name === HEALTH) return undefined;
      return operationOf(desktop.offered().find((tool) => tool.name === name) ?? { name });
    },
  };
}

const ANY_OBJECT = { type: 'object', additionalProperties: true };

function titleOf(name: string): string {
  const words = name.slice('desktop_'.length).replaceAll('_', ' ');
  return `Desktop: ${words}`;
}

/** A desktop answers to paired sessions only. */
function callerOf(actor: Actor) {
  if (actor.kind === 'operator') throw new RelayError('unauthorized', 'desktop tools need a session');
  return actor;
}
