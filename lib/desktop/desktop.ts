import type { Store } from '../../storage/schema.ts';
import { OWNER_TIMEOUT } from '../dispatch/commands.ts';
import { newRecord, openDispatcher, type RoomDeps, type Rules } from '../dispatch/dispatcher.ts';
import { createUseCheck, type Link } from '../dispatch/link.ts';
import { createEvent } from '../kit/event.ts';
import { parseJson } from '../kit/json.ts';
import { textOf, withoutMembers } from '../kit/json-text.ts';
import { type AdvertisedTool, isReadTool, type ToolCall } from '../operations/desktop.ts';
import { isDeviceId } from '../sessions/device.ts';
import { onFamilyEnd } from '../sessions/family-end.ts';
import { encodeEnvelope, isLongerThan, type Payload } from '../socket/envelope.ts';
import type { ActivityRecord } from './activity.ts';
import { createControlSessions, type Requester } from './control.ts';
import { openPersistence } from './persistence.ts';
import { redact, summarise } from './redact.ts';
import { refusal } from './refusal.ts';
import { createDesktopRegistry, type Device, describedTools, type Hint } from './registry.ts';
import { type DesktopResponse, decide, errorOf, readResponse, replyTo, statusOf, summaryOf } from './response.ts';
import { choose, named, offers, readSelector, SELECTOR_KEYS } from './selection.ts';
import { healthOf } from './status.ts';
import { isComputerTool, isToolName, timeoutOf } from './tools.ts';

/** Maximum size of a stored status, workspace or editor description (contract 07 §2.2). */
const MAX_DESCRIPTION = 64 * 1024;
const SHOWN_COMMANDS = 20;

/** Removed from a tool's arguments: the relay chooses the desktop and the control session. */
const NOT_ARGUMENTS: ReadonlySet<string> = new Set([...SELECTOR_KEYS, 'control_session', 'control_context']);
const isNoArgument = (key: string): boolean => NOT_ARGUMENTS.has(key);

export interface DesktopDeps extends RoomDeps {
  /** Where the registry is stored; absent where the process lives as long as its sockets. */
  registry?: Store<'desktop'>;
}

/** The relay's side of desktop tools: the connected desktops, and the commands sent to them (contract 07 §2). */
export async function openDesktop(deps: DesktopDeps) {
  const { sessions, clock, log } = deps;
  const devices = createEvent<[]>();
  const mayBeUsed = createUseCheck('desktop', deps);
  const isForeign = sessions.isDeviceOfAnother;
  const registry = createDesktopRegistry({ now: clock.now, isEligible: mayBeUsed, isForeign });
  const persistence = deps.registry && (await openPersistence({ store: deps.registry, clock, log }));
  const dispatcher = await openDispatcher<ActivityRecord, Target, DesktopResponse, string>(deps, rules);
  const control = createControlSessions({
    clock,
    ended: (link, payload) =>
      link.sendFrame(encodeEnvelope('desktop', 'desktop.control_session_end', payload, crypto.randomUUID())),
    changed: (link) => persistence?.controlChanged(link, control),
  });
  let stopping = false;

  onFamilyEnd(sessions, (family) => control.endWhere((other) => other.family === family, 'requester session ended'));

  /** True if a description is short enough to be kept. */
  function fits(link: Link, kind: string, frame: string): boolean {
    if (!isLongerThan(textOf(frame, 'payload') ?? '', MAX_DESCRIPTION)) return true;
    log.warn(`ignored a desktop ${kind} of ${frame.length} characters from session ${link.session.prefix}`);
    return false;
  }

  /** Restores a socket after a sleep, with its device, control sessions and commands in flight. */
  function restore(link: Link): void {
    persistence?.restore(link, { registry, control });
    const isOver = (session: { link: Link; family: string }) =>
      session.link === link && sessions.byFamily(session.family) === undefined;
    control.endWhere(isOver, 'requester session ended');
    const device = registry.of(link);
    dispatcher.restore(link, (record) => device ?? targetOf(record));
  }

  /** The requester of a control session; undefined if the caller does not identify itself enough (contract 07 §2.4). */
  function requesterOf({ session, run: { chatSession, runId, profile } }: ToolCall): Requester | undefined {
    const { family, device } = session;
    if (runId === undefined || !isDeviceId(device.id)) return undefined;
    return { family, deviceId: device.id, chatSession, runId, profile };
  }

  function frameOf(requestId: string, call: ToolCall, args: string, device: Device): string {
    const requester = isComputerTool(call.tool) ? requesterOf(call) : undefined;
    const session = requester && control.use(device, requester, requestId);
    const rest = JSON.stringify({ target_device_id: device.id, control_session: session });
    return (
      `{"channel":"desktop","type":"desktop.command","id":"${requestId}","payload":{"request_id":"${requestId}",` +
      `"tool":"${call.tool}","args":${args},${rest.slice(1)}}`
    );
  }

  return {
    /** Names of the tools that the desktop on a socket advertises. */
    toolsOf: (link: Link): string[] => [...(registry.of(link)?.tools ?? [])],

    /** Handles `status`: its sender becomes a device. `frame` is the text of the frame. */
    report(link: Link, status: Payload, frame: string): void {
      if (!fits(link, 'status', frame)) return;
      const isNew = registry.of(link) === undefined;
      const { id } = registry.report(link, status);
      persistence?.socketChanged(link, registry);
      devices.emit();
      if (isNew) log.info(`desktop ${id} connected`);
    },

    /** Handles `workspace` and `active_editor`. */
    hint(link: Link, kind: Hint, payload: Payload, frame: string): void {
      if (!fits(link, kind, frame)) return;
      registry.hint(link, kind, payload);
      persistence?.socketChanged(link, registry);
    },

    /** `desktop.response` in the frame `frame`. Ignored unless it answers a pending command of this socket. */
    answered(link: Link, payload: Payload, frame: string): void {
      registry.seen(link);
      dispatcher.answered(link, payload, () => readResponse(payload, frame));
    },

    waiting: dispatcher.waiting,

    /** A socket has authenticated, or, with `slept`, was restored after a sleep of the process (edge). */
    opened(link: Link, slept: boolean): void {
      if (slept) restore(link);
    },

    /** Every socket that survived the sleep is restored. Commands to other sockets get no answer any more. */
    restored(): void {
      persistence?.restored();
      dispatcher.restored(({ device_id: id }) => `${id} disconnected`, targetOf);
    },

    /** The socket is gone: its commands fail at once. */
    closed(link: Link): void {
      if (!registry.has(link)) return;
      const device = registry.remove(link);
      control.drop(link);
      persistence?.socketChanged(link, registry);
      persistence?.controlChanged(link, control);
      if (!device) return;
      dispatcher.failAllOf(link, `${device.name} disconnected`);
      devices.emit();
      log.info(`desktop ${device.id} disconnected`);
    },

    /** The socket stays open, but its session lost the grant for desktop tools. */
    grantLost(link: Link): void {
      const device = registry.of(link);
      if (!device) return;
      control.endWhere((session) => session.link === link, 'desktop grant ended');
      dispatcher.failAllOf(link, `the desktop grant of ${device.name} ended`);
      devices.emit();
    },

    isTool: isToolName,

    /** True if an answer says that the desktop refused or failed. Not parsed, since it may be many MiB. */
    isRefused(json: string): boolean {
      const member = (name: string): unknown => parseJson(textOf(json, name) ?? '');
      return decide({ payload: { ok: member('ok'), status: member('status') }, text: json }) === 'error';
    },

    /** The tools that connected desktops advertise, each once, as described by the desktop heard last. */
    offered(): AdvertisedTool[] {
      const tools = new Map<string, AdvertisedTool>();
      for (const { status } of registry.list()) {
        for (const tool of describedTools(status)) if (!tools.has(tool.name)) tools.set(tool.name, tool);
      }
      return [...tools.values()];
    },

    /**
     * Sends one call to a desktop; resolves with the JSON of its response.
     * @throws RelayError with the `error_code` of contract 07 §2.3.
     */
    async call(call: ToolCall): Promise<string> {
      if (stopping) throw refusal('bad-gateway', 'desktop_disconnected', 'Relay is shutting down');
      const { tool, query, signal, actor } = call;
      const { text, value } = call.args;
      const recordFor = (device?: Device): ActivityRecord =>
        newRecord(clock.now(), {
          tool,
          device_id: device?.id ?? null,
          device_name: device?.name ?? null,
          args: redact(Object.fromEntries(Object.entries(value).filter(([key]) => !isNoArgument(key)))),
        });
      dispatcher.requireThawed(actor, recordFor);
      const selector = readSelector(value) ?? readSelector(query);
      const device = choose(registry.list(), { selector, tool, isForeign });
      const { link } = device;
      dispatcher.requireRoom(link);
      // Scans the text only if there is something to remove.
      const args = Object.keys(value).some(isNoArgument) ? withoutMembers(text, isNoArgument) : text;
      const record = recordFor(device);
      const frame = frameOf(record.request_id, call, args, device);
      const target = { id: device.id, name: device.name };
      return dispatcher.send({ record, actor, target, link, frame, timeout: timeoutOf(tool), signal });
    },

    /** True if a desktop is connected and offers the tool, if one is named; else the reason (contract 07 §2.3). */
    ping(tool: string | undefined, query: Readonly<Record<string, string>>): true | string {
      const all = registry.list();
      if (all.length === 0) return 'no desktop connected';
      const selected = named(all, readSelector(query), isForeign);
      if (selected.length === 0) return 'no such desktop connected';
      return tool === undefined || selected.some((device) => offers(device, tool)) || `no desktop offers ${tool}`;
    },

    /** `GET /desktop/health` (contract 07 §2.3). */
    health: (): Payload => healthOf(registry.list(), dispatcher.pendingCount(), dispatcher.list(SHOWN_COMMANDS)),

    activity: dispatcher.list,

    onCommand: dispatcher.onChange,
    onDevices: devices.on,

    /** Fails pending commands and refuses new ones. */
    stop(): void {
      stopping = true;
      control.stop();
      dispatcher.stop();
    },
  };
}

/** The desktop of a command, for its errors and its reply. */
type Target = Pick<Device, 'id' | 'name'>;

/** The desktop of a command, from its record. */
const targetOf = ({ device_id: id }: ActivityRecord): Target => ({ id: id ?? '', name: id ?? 'the desktop' });

const rules: Rules<ActivityRecord, Target, DesktopResponse, string> = {
  channel: 'desktop',
  full: () => refusal('unavailable', 'busy', 'too many commands are under way on this desktop'),

  answered(record, response, { id, name }) {
    record.decision = decide(response);
    record.response_status = statusOf(response);
    record.error = errorOf(response);
    record.result_summary = summaryOf(record.tool, response);
    return replyTo(response, { device_id: id, device_name: name });
  },

  timeout: ({ tool }, { name }, isOwnerAsked) =>
    refusal(
      'gateway-timeout',
      'timeout',
      isOwnerAsked
        ? `the owner of ${name} did not decide within ${Math.max(OWNER_TIMEOUT, timeoutOf(tool)) / 1000} s`
        : `${name} did not answer within ${timeoutOf(tool) / 1000} s: its owner may still be asked there`,
    ),

  unsent: (cause) => `the command could not be sent: ${cause}`,
  lost: (error) => refusal('bad-gateway', 'desktop_disconnected', error),
  // Redacts arguments: they are in the activity, but texts in them do not belong in a log file.
  details: ({ tool, args }) => `arguments of ${tool}: ${summarise(args)}`,
  describe: ({ tool, device_id: id, decision, response_status: status }) =>
    `${tool} on ${id ?? 'no desktop'}: ${decision} ${status ?? '-'}`,
  isRead: ({ tool }) => isReadTool(tool),
};
