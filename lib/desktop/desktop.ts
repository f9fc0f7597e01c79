import type { Store } from '../../storage/schema.ts';
import { createCommands, type Outcome } from '../dispatch/commands.ts';
import { textOf, withoutMembers } from '../dispatch/json-text.ts';
import type { Link } from '../dispatch/link.ts';
import { startOf } from '../dispatch/recorder.ts';
import { createRing } from '../dispatch/ring.ts';
import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { isDeviceId } from '../sessions/device.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { encodeEnvelope, isLongerThan, type Payload } from '../socket/envelope.ts';
import type { JsonText } from '../web/json.ts';
import { type Answer, decide, errorOf, readAnswer, replyTo, statusOf, summaryOf } from './answer.ts';
import { createControlSessions, type Requester } from './control.ts';
import { type CommandRecord, healthOf } from './health.ts';
import { createMemory, type Memory } from './memory.ts';
import { redact, summarise } from './redact.ts';
import { refusal } from './refusal.ts';
import { choose, named, offers, readSelector, SELECTOR_KEYS } from './selection.ts';
import { createTargets, type Hint, type Target } from './targets.ts';
import { isComputerTool, timeoutOf } from './tools.ts';

/** What a desktop tells of itself is kept up to this size, each kind (contract 07 §2.2). */
const MAX_HINT = 64 * 1024;
const MAX_ERROR = 500;
const SHOWN_COMMANDS = 20;

/** Taken out of a tool's arguments: who is asked is the relay's matter, and so is a control session. */
const NOT_ARGUMENTS: ReadonlySet<string> = new Set([...SELECTOR_KEYS, 'control_session', 'control_context']);
const isNoArgument = (key: string): boolean => NOT_ARGUMENTS.has(key);

export interface DesktopParts {
  sessions: Sessions;
  clock: Clock;
  log: Log;
  /** Where desktops are remembered while the process sleeps; absent where it lives as long as its sockets. */
  remember?: Store<'desktop'>;
}

/** A call of a tool (contract 07 §2.3). */
export interface ToolCall {
  tool: string;
  /** Its arguments, with whatever names the desktop still among them. */
  args: Readonly<JsonText>;
  /** The query: it may name the desktop where the arguments do not. */
  query: Readonly<Record<string, string>>;
  /** Who calls, and in which run of an agent (contract 07 §2.4). */
  session: Session;
  run: { chatSession?: string; runId?: string; profile?: string };
  /** The caller's own end. */
  signal?: AbortSignal;
}

export type Desktop = ReturnType<typeof createDesktop>;

/** The relay's side of desktop tools: which desktops are there, and what is asked of them (contract 07 §2). */
export function createDesktop({ sessions, clock, log, remember }: DesktopParts) {
  const mayBeUsed = ({ isOpen, session }: Link): boolean =>
    isOpen && sessions.isAlive(session) && isGranted(session.grants, 'desktop', clock.now() / 1000);
  const targets = createTargets({ now: clock.now, isEligible: mayBeUsed });
  const busy = () => refusal('unavailable', 'busy', 'too many commands are under way on this desktop');
  const commands = createCommands<Link, Answer>(clock, busy);
  const recent = createRing<CommandRecord>();
  const memory = remember && createMemory(remember, log);
  const control = createControlSessions({
    clock,
    ended: (link, payload) =>
      link.sendFrame(encodeEnvelope('desktop', 'desktop.control_session_end', payload, crypto.randomUUID())),
    changed: (link) => memory?.saveControl(link, control.records(link)),
  });
  let stopping = false;

  sessions.onEnd(({ family }) => control.endWhere((other) => other.family === family, 'requester session ended'));

  /** Whether a self-description is short enough to be kept. */
  function fits(link: Link, kind: string, frame: string): boolean {
    if (!isLongerThan(textOf(frame, 'payload') ?? '', MAX_HINT)) return true;
    log.warn(`ignored a desktop ${kind} of ${frame.length} characters from session ${link.session.prefix}`);
    return false;
  }

  function save(link: Link): void {
    const record = memory && targets.record(link);
    if (record) memory.saveTarget(link, record);
  }

  async function restore(from: Memory, link: Link): Promise<void> {
    const kept = await from.load(link);
    if (!kept) return;
    targets.restore(link, kept.target);
    control.restore(link, kept.sessions);
    const isOver = (session: { link: Link; family: string }) =>
      session.link === link && sessions.byFamily(session.family) === undefined;
    control.endWhere(isOver, 'requester session ended');
  }

  /** Whom a control session is for; undefined where the caller does not say enough (contract 07 §2.4). */
  function requesterOf({ session, run: { chatSession, runId, profile } }: ToolCall): Requester | undefined {
    const { family, device } = session;
    if (runId === undefined || !isDeviceId(device.id)) return undefined;
    return { family, deviceId: device.id, chatSession, runId, profile };
  }

  function frameOf(requestId: string, call: ToolCall, args: string, target: Target): string {
    const requester = isComputerTool(call.tool) ? requesterOf(call) : undefined;
    const session = requester && control.use(target, requester, requestId);
    const rest = JSON.stringify({ target_device_id: target.id, control_session: session });
    return (
      `{"channel":"desktop","type":"desktop.command","id":"${requestId}","payload":{"request_id":"${requestId}",` +
      `"tool":"${call.tool}","args":${args},${rest.slice(1)}}`
    );
  }

  /** Writes down how a command ended, and makes the caller's answer of it. */
  function conclude(record: CommandRecord, outcome: Outcome<Answer>, { id, name }: Target): string | RelayError {
    const failed = (error: string) => {
      record.decision = 'error';
      record.error = error;
      return refusal('bad-gateway', 'desktop_disconnected', error);
    };
    switch (outcome.kind) {
      case 'answered': {
        const { answer } = outcome;
        record.decision = decide(answer);
        record.response_status = statusOf(answer);
        const error = errorOf(answer);
        record.error = error === null ? null : startOf(error, MAX_ERROR);
        record.result_summary = summaryOf(record.tool, answer);
        return replyTo(answer, { device_id: id, device_name: name });
      }
      case 'timeout':
        record.decision = 'timeout';
        return refusal(
          'gateway-timeout',
          'timeout',
          `${name} did not answer within ${timeoutOf(record.tool) / 1000} s`,
        );
      case 'unsent':
        return failed(`the command could not be sent: ${outcome.error}`);
      case 'failed':
        return failed(outcome.error);
      case 'abandoned':
        return failed('caller disconnected');
    }
  }

  return {
    /** `status`: its sender is a target from now on. `frame` is the text that it came in. */
    report(link: Link, status: Payload, frame: string): void {
      if (!fits(link, 'status', frame)) return;
      const isNew = targets.of(link) === undefined;
      const { id } = targets.report(link, status);
      save(link);
      if (isNew) log.info(`desktop ${id} is there`);
    },

    /** `workspace` and `active_editor`. */
    hint(link: Link, kind: Hint, payload: Payload, frame: string): void {
      if (!fits(link, kind, frame)) return;
      targets.hint(link, kind, payload);
      save(link);
    },

    /** `desktop.response` in the frame `frame`. What answers no pending command of this socket is ignored. */
    answered(link: Link, payload: Payload, frame: string): void {
      const { request_id: id } = payload;
      targets.seen(link);
      if (typeof id === 'string') commands.answer(id, link, () => readAnswer(payload, frame));
    },

    /** A socket that `slept` is open again with an object that was put away: it is what it was. */
    opened: (link: Link, slept: boolean): void | Promise<void> => (slept && memory ? restore(memory, link) : undefined),

    /** The socket is gone: what was asked of it fails at once. */
    closed(link: Link): void {
      if (!targets.has(link)) return;
      const target = targets.remove(link);
      control.drop(link);
      memory?.forget(link);
      if (!target) return;
      commands.failAllOf(link, `${target.name} disconnected`);
      log.info(`desktop ${target.id} is gone`);
    },

    /** The socket stays, but it may not be asked any more. */
    grantLost(link: Link): void {
      const target = targets.of(link);
      if (!target) return;
      control.endWhere((session) => session.link === link, 'desktop grant ended');
      commands.failAllOf(link, `the desktop grant of ${target.name} ended`);
    },

    /**
     * Carries one call to a desktop; gives the JSON of its answer.
     * @throws RelayError with the `error_code` of contract 07 §2.3.
     */
    call(call: ToolCall): Promise<string> {
      if (stopping) throw refusal('bad-gateway', 'desktop_disconnected', 'Relay is shutting down');
      const { tool, query, signal } = call;
      const { text, value } = call.args;
      const target = choose(targets.list(), readSelector(value) ?? readSelector(query), tool);
      const { link } = target;
      if (commands.isFull(link)) throw busy();
      const id = crypto.randomUUID();
      // The text is looked through only where there is something to take out.
      const args = Object.keys(value).some(isNoArgument) ? withoutMembers(text, isNoArgument) : text;
      const record: CommandRecord = {
        request_id: id,
        tool,
        device_id: target.id,
        args: redact(Object.fromEntries(Object.entries(value).filter(([key]) => !isNoArgument(key)))),
        sent_at: clock.now(),
        response_status: null,
        result_summary: null,
        error: null,
        decision: 'pending',
      };
      let settled!: (outcome: Outcome<Answer>) => void;
      // What is captured here lives as long as the command: not the arguments, which may be many MiB.
      const reply = new Promise<string>((resolve, reject) => {
        settled = (outcome) => {
          const reply = conclude(record, outcome, target);
          const took = clock.now() - record.sent_at;
          log.debug(`${tool} on ${target.id}: ${record.decision} in ${took} ms, args ${summarise(record.args)}`);
          if (reply instanceof RelayError) reject(reply);
          else resolve(reply);
        };
      });
      const frame = frameOf(id, call, args, target);
      recent.add(record);
      commands.open({ id, owner: link, frame, timeout: timeoutOf(tool), signal, settled });
      return reply;
    },

    /** Whether a desktop is there, and offers the tool where one is named; else why not (contract 07 §2.3). */
    ping(tool: string | undefined, query: Readonly<Record<string, string>>): true | string {
      const all = targets.list();
      if (all.length === 0) return 'no desktop connected';
      const selected = named(all, readSelector(query));
      if (selected.length === 0) return 'no such desktop connected';
      return tool === undefined || selected.some((target) => offers(target, tool)) || `no desktop offers ${tool}`;
    },

    /** `GET /desktop/health` (contract 07 §2.3). */
    health: (): Payload => healthOf(targets.list(), commands.count(), recent.list(SHOWN_COMMANDS)),

    /** Fails what is pending, and takes nothing on any more. */
    stop(): void {
      stopping = true;
      control.stop();
      commands.failAll('Relay is shutting down');
    },
  };
}
