import { errorText, firstString, flag, readEvent } from '../../../chat/events.ts';
import { cutText, preview } from '../../../chat/preview.ts';
import { createSseReader } from '../../../chat/sse.ts';
import { isObject, type JsonObject } from '../../../kit/json.ts';

/** An event of the agent's stream in the form for the voice broker (contract 06 §4.2, §5.3). `svc.*` go to the client. */
export type MappedEvent =
  | { type: 'svc.run.started'; run_id?: string }
  | { type: 'svc.message.started'; message_id: string }
  | (ToolEvent & { type: 'svc.tool.started'; arguments?: unknown; synthetic?: true })
  | (ToolEvent & { type: 'svc.tool.delta'; delta: string })
  | (ToolEvent & { type: 'svc.tool.completed'; result_preview?: string; success: boolean })
  | (ToolEvent & { type: 'svc.tool.failed'; error: string })
  | { type: 'svc.confirmation.requested'; confirmation_id: string; message: string; run_id?: string }
  /** The next piece of the answer; all pieces together are the answer. */
  | { type: 'answer'; text: string }
  /** The run is complete. `text` is the whole answer. Nothing follows. */
  | { type: 'end'; text: string }
  /** The run has failed. Nothing follows. */
  | { type: 'error'; message: string; code?: string };

interface ToolEvent {
  run_id?: string;
  tool_call_id: string;
  tool_name: string;
  /** One line for display. */
  message: string;
}

/** Turns the bytes of one run into events, in order. Nothing comes after `end` or `error`. */
export interface SseMap {
  push(bytes: Uint8Array): MappedEvent[];
  /** The stream has ended. */
  end(): MappedEvent[];
}

const MAX_ID = 200;
const MAX_MESSAGE = 240;
const MAX_RESULT = 2000;
/** Characters of a tool's arguments, and of one delta, that are shown to a client. */
const MAX_SHOWN = 8192;
/** Characters of the answer, and of the drafting text, that are stored. */
const MAX_ANSWER = 1024 * 1024;
/** Call ids that are remembered; a forgotten one is announced again. */
const MAX_CALLS = 1024;

/** Name of the tool in a delta without one. */
const DEFAULT_TOOL = 'svc';
const DRAFTING = new Set(['_thinking', 'thinking', DEFAULT_TOOL]);

/** True if a tool's name marks drafting text, rather than the work of a tool (contract 06 §5.3). */
const isDrafting = (toolName: string): boolean => DRAFTING.has(toolName);

type Mapper = (map: Run, data: JsonObject) => void;

const TABLE: [map: Mapper, upstream: string[]][] = [
  [(run, data) => run.text(firstString(data.delta, data.content)), ['assistant.delta', 'content_delta', 'delta']],
  [
    (run, data) => run.wholeText(firstString(data.content)),
    ['assistant.completed', 'content_complete', 'complete', 'completed'],
  ],
  [(run) => run.started(), ['run.started', 'response.created']],
  [
    (run, data) => run.toolDelta(data),
    ['thinking_delta', 'reasoning_delta', 'thinking', 'reasoning.available', 'tool.progress'],
  ],
  [(run, data) => run.toolStarted(data), ['tool.pending', 'tool.started', 'tool_start', 'tool_started']],
  [
    (run, data) => run.toolCompleted(data),
    ['tool.completed', 'tool_result', 'tool_completed', 'memory.updated', 'skill.loaded', 'artifact.created'],
  ],
  [(run, data) => run.toolFailed(data), ['tool.failed', 'tool_error']],
  [
    (run, data) => run.confirmation(data),
    ['confirmation.requested', 'confirmation.required', 'tool.confirmation_requested'],
  ],
  [(run, data) => run.messageStarted(data), ['message.started']],
  [(run) => run.complete(), ['run.completed', 'response.completed', 'done']],
  [(run, data) => run.fail(errorText(data.message, data.error) || 'The run failed'), ['error']],
];
const BY_UPSTREAM = new Map(TABLE.flatMap(([map, names]) => names.map((name) => [name, map])));

/** Maps the event stream of one run (contract 06 §5.3). Independent of how its bytes are chunked. */
export function createSseMap(): SseMap {
  let events: MappedEvent[] = [];
  const run = new Run((event) => void events.push(event));
  const reader = createSseReader((sse) => {
    if (run.isOver) return;
    const event = readEvent(sse);
    const map = event?.kind === 'event' ? BY_UPSTREAM.get(event.type ?? '') : undefined;
    if (event?.kind !== 'event' || !map) return;
    run.identify(runIdOf(event.data));
    map(run, event.data);
  });
  const take = (): MappedEvent[] => {
    const pending = events;
    events = [];
    return pending;
  };
  return {
    push(bytes) {
      if (!run.isOver) reader.push(bytes);
      return take();
    },
    end() {
      if (!run.isOver) reader.end();
      if (!run.isOver) run.complete();
      return take();
    },
  };
}

/** State of one run while its events arrive. */
class Run {
  readonly #emit: (event: MappedEvent) => void;
  #runId: string | undefined;
  #announced: 'no' | 'without-id' | 'yes' = 'no';
  readonly #calls = new Set<string>();
  readonly #answer = new Collected();
  readonly #drafting = new Collected();
  #whole = '';
  isOver = false;

  constructor(emit: (event: MappedEvent) => void) {
    this.#emit = emit;
  }

  /** The first id counts. A start that was announced without it is announced again. */
  identify(runId: string): void {
    if (runId === '' || this.#runId !== undefined) return;
    this.#runId = runId;
    if (this.#announced === 'without-id') this.started();
  }

  started(): void {
    if (this.#announced === 'yes' || (this.#announced === 'without-id' && this.#runId === undefined)) return;
    this.#announced = this.#runId === undefined ? 'without-id' : 'yes';
    this.#emit({ type: 'svc.run.started', ...this.#id() });
  }

  text(text: string): void {
    const added = this.#answer.add(text);
    if (added !== '') this.#emit({ type: 'answer', text: added });
  }

  wholeText(text: string): void {
    if (text !== '') this.#whole = text.slice(0, MAX_ANSWER).toWellFormed();
  }

  toolDelta(data: JsonObject): void {
    const delta = firstString(data.delta, data.thinking, data.content, data.text, data.message);
    if (delta === '') return;
    const tool = toolOf(data);
    if (isDrafting(tool.tool_name)) this.#drafting.add(delta);
    else this.#ensureStarted(tool);
    this.#emit({
      type: 'svc.tool.delta',
      ...this.#id(),
      ...tool,
      delta: cutText(delta, MAX_SHOWN),
      message: lineOf(delta),
    });
  }

  toolStarted(data: JsonObject): void {
    const tool = toolOf(data);
    this.#remember(tool.tool_call_id);
    const args = data.args ?? data.arguments;
    this.#emit({
      type: 'svc.tool.started',
      ...this.#id(),
      ...tool,
      ...(args === undefined || args === null ? {} : { arguments: shownArguments(args) }),
      message: lineOf(firstString(data.message) || `Running ${tool.tool_name}`),
    });
  }

  toolCompleted(data: JsonObject): void {
    const tool = toolOf(data);
    this.#ensureStarted(tool);
    const result = resultOf(data);
    this.#emit({
      type: 'svc.tool.completed',
      ...this.#id(),
      ...tool,
      ...(result === '' ? {} : { result_preview: result }),
      success: flag(data.success, true),
      message: lineOf(firstString(data.message) || `${tool.tool_name} finished`),
    });
  }

  toolFailed(data: JsonObject): void {
    const tool = toolOf(data);
    this.#ensureStarted(tool);
    const error = cutText(errorText(data.error, data.message) || 'Tool failed', MAX_RESULT);
    this.#emit({ type: 'svc.tool.failed', ...this.#id(), ...tool, error, message: lineOf(error) });
  }

  confirmation(data: JsonObject): void {
    // A confirmation without an id gets that of its run, which is what upstream expects anyway.
    const id = firstString(data.confirmation_id, data.id, data.call_id, this.#runId);
    if (id === '') return;
    const message = cutText(firstString(data.message, data.prompt) || 'The agent asks for a confirmation', MAX_RESULT);
    this.#emit({ type: 'svc.confirmation.requested', ...this.#id(), confirmation_id: cutText(id, MAX_ID), message });
  }

  messageStarted(data: JsonObject): void {
    const id = firstString(isObject(data.message) ? data.message.id : undefined, data.message_id, data.id);
    if (id !== '') this.#emit({ type: 'svc.message.started', message_id: cutText(id, MAX_ID) });
  }

  /** Drafting text is the answer of last resort. */
  complete(): void {
    if (this.#answer.isEmpty) this.text(this.#whole.trim() === '' ? this.#drafting.text() : this.#whole);
    this.isOver = true;
    this.#emit({ type: 'end', text: this.#answer.text() });
  }

  fail(message: string): void {
    this.isOver = true;
    this.#emit({ type: 'error', message: cutText(message, MAX_RESULT) });
  }

  #id(): { run_id?: string } {
    return this.#runId === undefined ? {} : { run_id: this.#runId };
  }

  #ensureStarted(tool: Pick<ToolEvent, 'tool_call_id' | 'tool_name'>): void {
    if (this.#calls.has(tool.tool_call_id)) return;
    this.#remember(tool.tool_call_id);
    const message = `Running ${tool.tool_name}`;
    this.#emit({ type: 'svc.tool.started', ...this.#id(), ...tool, message, synthetic: true });
  }

  #remember(callId: string): void {
    this.#calls.add(callId);
    const [oldest] = this.#calls;
    if (this.#calls.size > MAX_CALLS && oldest !== undefined) this.#calls.delete(oldest);
  }
}

/** Text that arrives in pieces, up to a limit. */
class Collected {
  readonly #pieces: string[] = [];
  #length = 0;

  /** Returns the part of the piece that was added. */
  add(piece: string): string {
    const fitting = piece.slice(0, MAX_ANSWER - this.#length);
    if (fitting !== '') this.#pieces.push(fitting);
    this.#length += fitting.length;
    return fitting;
  }

  get isEmpty(): boolean {
    return this.#length === 0;
  }

  text(): string {
    return this.#pieces.join('').toWellFormed();
  }
}

const runIdOf = ({ run_id, response }: JsonObject): string =>
  cutText(firstString(run_id, isObject(response) ? response.id : undefined), MAX_ID);

function toolOf(data: JsonObject): Pick<ToolEvent, 'tool_call_id' | 'tool_name'> {
  const { tool, tool_name, name, call_id, tool_call_id, id } = data;
  const named = firstString(isObject(tool) ? tool.name : tool, tool_name, name) || DEFAULT_TOOL;
  return {
    tool_call_id: cutText(firstString(call_id, tool_call_id, id) || named, MAX_ID),
    tool_name: cutText(named, MAX_ID),
  };
}

/** Arguments without secrets; if large, the beginning of their JSON text. */
function shownArguments(args: unknown): unknown {
  const shown = preview(args);
  const json = JSON.stringify(shown);
  return json.length > MAX_SHOWN ? { preview: cutText(json, MAX_RESULT) } : shown;
}

function resultOf(data: JsonObject): string {
  const { result_preview, result, content, output, message, preview: shown, text } = data;
  for (const value of [result_preview, result, content, output, message, shown, text]) {
    if (typeof value === 'string' && value !== '') return cutText(value, MAX_RESULT);
    if (typeof value === 'object' && value !== null) return cutText(JSON.stringify(preview(value)), MAX_RESULT);
    if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  }
  return '';
}

/** Text as one short line. Reads no more of it than can be shown. */
const lineOf = (text: string): string =>
  cutText(
    text
      .slice(0, 4 * MAX_MESSAGE)
      .replace(/\s+/g, ' ')
      .trim() || '…',
    MAX_MESSAGE,
  );
