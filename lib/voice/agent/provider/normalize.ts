import { isObject, type JsonObject } from '../../../kit/json.ts';
import {
  AUDIO_DELTA,
  AUDIO_DONE,
  audioOf,
  errorIn,
  errorText,
  failureOf,
  NOT_AN_EVENT,
  NOT_BASE64,
  readEvent,
  TEXT_DELTA,
} from '../../streaming/realtime-events.ts';
import { readUsage } from '../usage.ts';
import type { ProviderEvent } from './provider.ts';

/** Ids that are remembered of each kind, the oldest forgotten first. */
const MAX_REMEMBERED = 1024;
/** Maximum calls whose name has not arrived. */
const MAX_UNNAMED = 16;
const MAX_ID = 200;
const MAX_ARGUMENTS = 256 * 1024;
/** Characters of an error to examine. */
const MAX_ERROR = 1000;

const READY = new Set(['session.created', 'session.updated', 'conversation.created']);
const TRANSCRIPTION = /^(?:conversation\.item\.)?input_audio_transcription\.(delta|completed|done|failed)$/;

/** Errors that do not end a session, by code or wording. */
const HARMLESS_CODES = new Set([
  'response_cancel_not_active',
  'conversation_already_has_active_response',
  'input_audio_buffer_commit_empty',
]);
const HARMLESS =
  /no active response|cancellation failed|active response (?:already )?in progress|(?=.*commit)(?=.*(?:empty|too small))/i;
/** Errors of a session that ended because of its age or inactivity. */
const EXPIRED = /timed out.*inactivity|inactivity.*timed out|maximum (?:session )?duration|session.*maximum duration/i;

/** Prefix of the ids of messages whose refusal is harmless. */
export const OPTIONAL_MESSAGE = 'optional-';
/** Id of the message with the session's settings. */
export const SETTINGS_MESSAGE = 'settings';

/** Seconds until a retry if neither the error nor the reported rate limits say so. */
const RETRY_AFTER = 20;
const MAX_RETRY_AFTER = 3600;
/** As in `Please try again in 1m26.4s`, or `in 250ms`. */
const TRY_AGAIN = /\btry again in (?:(\d{1,3})m(?!s))?(?:(\d{1,6}(?:\.\d{1,6})?)(ms|s))?/i;

export const isExpiry = (text: string): boolean => EXPIRED.test(text.slice(0, MAX_ERROR));

export interface Normalizer {
  /** The events in one message of the provider, usually one or none. */
  read(text: string): ProviderEvent[];
  /** Another utterance is committed, whose transcript may come under the id of an earlier one. */
  committed(): void;
  /** True if the provider has said that it ends the session because of its age or inactivity. */
  readonly isExpired: boolean;
  /** True if the provider has accepted the session's settings. */
  readonly isConfigured: boolean;
}

/**
 * Turns the messages of a provider into events (contract 06 §9). `redact` makes its texts safe for a client; `now` is in
 * epoch ms.
 */
export function createNormalizer(label: string, redact: (text: string) => string, now: () => number): Normalizer {
  const responses = remembering();
  /** Items of this utterance with final transcripts. */
  const transcripts = new Set<string>();
  /** The transcript of the current item so far, for a provider that repeats all of it. */
  let partial: { item: string | undefined; text: string } | undefined;
  const calls = remembering();
  /** Names of calls, and ids of calls by the ids of their items. */
  const names = new Map<string, string>();
  const callIds = new Map<string, string>();
  /** Calls whose arguments came before their name. */
  const unnamed = new Map<string, { responseId: string; args: string }>();
  /** Responses in progress, the latest last. */
  const running = new Set<string>();
  let madeUp = 0;
  /** Half a sample, which the next delta of the same response completes. */
  let half: { responseId: string; byte: number } | undefined;
  let isExpired = false;
  let isConfigured = false;
  /** Seconds until exhausted rate limits are reset, as last reported. */
  let resetSeconds: number | undefined;

  const inWords = (text: string): string => redact(`${label} Realtime error: ${text}`);
  const failed = (text: string): ProviderEvent => ({ type: 'error', message: inWords(text) });

  /** Retry advice for an error about a rate limit. */
  function adviceOn(error: unknown): { retryAfter?: number } {
    const { code, type } = isObject(error) ? error : { code: undefined, type: undefined };
    if (![code, type].some((name) => typeof name === 'string' && /^rate_limit/i.test(name))) return {};
    const [, minutes, amount, unit] = TRY_AGAIN.exec(errorText(error).slice(0, MAX_ERROR)) ?? [];
    const isNamed = minutes !== undefined || amount !== undefined;
    const named = Number(minutes ?? 0) * 60 + Number(amount ?? 0) / (unit?.toLowerCase() === 'ms' ? 1000 : 1);
    const seconds = isNamed ? named : (resetSeconds ?? RETRY_AFTER);
    return { retryAfter: Math.min(Math.max(Math.ceil(seconds), 1), MAX_RETRY_AFTER) };
  }

  function limits({ rate_limits: all }: JsonObject): void {
    const spent = (Array.isArray(all) ? all.slice(0, MAX_UNNAMED) : []).filter(
      (limit) => isObject(limit) && typeof limit.remaining === 'number' && limit.remaining <= 0,
    );
    const seconds = spent.map(({ reset_seconds: reset }) => reset).filter((reset) => Number.isFinite(reset));
    resetSeconds = seconds.length === 0 ? undefined : Math.max(...seconds);
  }

  /** Why a response is incomplete or failed. */
  function shortfall(event: JsonObject, response: JsonObject) {
    const { status } = response;
    if (status !== 'failed' && status !== 'incomplete') return {};
    const details = isObject(response.status_details) ? response.status_details : {};
    const error = isObject(details.error) ? details.error : {};
    const named = [details.reason, error.code, error.type].find((text) => typeof text === 'string' && text !== '');
    const reason = redact(String(named ?? status).slice(0, MAX_ID));
    const words = failureOf(event) ?? `the response is incomplete: ${reason}`;
    return { reason, message: inWords(words), ...adviceOn(details.error) };
  }

  /** The response of an event by its id, else the latest one in progress. */
  const namedResponse = (event: JsonObject): string | undefined => responseIdIn(event) ?? [...running].at(-1);

  /** The response of an event, which starts with its first event. */
  function responseOf(event: JsonObject, events: ProviderEvent[]): string {
    const responseId = (event.type === 'response.created' ? responseIdIn(event) : namedResponse(event)) ?? madeUpId();
    if (responses.add(responseId)) {
      running.add(responseId);
      const [oldest] = running;
      if (oldest !== undefined && running.size > MAX_REMEMBERED) running.delete(oldest);
      events.push({ type: 'responseStarted', responseId });
    }
    return responseId;
  }

  const madeUpId = (): string => `response-${++madeUp}`;

  function audio(event: JsonObject, events: ProviderEvent[]): void {
    const bytes = audioOf(event);
    if (!bytes) return void events.push(failed(NOT_BASE64));
    const responseId = responseOf(event, events);
    const pcm = wholeSamples(responseId, bytes);
    if (pcm.length === 0) return;
    const { content_index: index } = event;
    events.push({
      type: 'audioDelta',
      responseId,
      ...(idOf(event.item_id) !== undefined && { itemId: idOf(event.item_id) }),
      ...(Number.isSafeInteger(index) && { contentIndex: index as number }),
      pcm,
    });
  }

  function wholeSamples(responseId: string, bytes: Uint8Array): Uint8Array {
    const pendingByte = half?.responseId === responseId ? half.byte : undefined;
    half = undefined;
    let all = bytes;
    if (pendingByte !== undefined) {
      all = new Uint8Array(bytes.length + 1);
      all[0] = pendingByte;
      all.set(bytes, 1);
    }
    if (all.length % 2 === 0) return all;
    half = { responseId, byte: all.at(-1) as number };
    return all.subarray(0, -1);
  }

  function transcript(kind: string, event: JsonObject): ProviderEvent[] {
    if (kind === 'failed') {
      partial = undefined;
      return [{ type: 'transcriptFailed' }];
    }
    const found = [event.delta, event.transcript, event.text].find((text) => typeof text === 'string');
    const text = typeof found === 'string' ? found : '';
    if (kind === 'delta') return text === '' ? [] : [{ type: 'transcriptDelta', text }];
    // xAI reports each state of a transcript as `completed`, and the last of them without this status.
    const item = idOf(event.item_id);
    if (event.status === 'in_progress') return grown(item, text);
    partial = undefined;
    if (item !== undefined && transcripts.has(item)) return [];
    if (item !== undefined && transcripts.size < MAX_REMEMBERED) transcripts.add(item);
    return [...usageOf(event.usage), { type: 'transcriptFinal', text }];
  }

  /** The words since the last state of an item's transcript; empty if the earlier words have changed. */
  function grown(item: string | undefined, text: string): ProviderEvent[] {
    const before = partial?.item === item ? (partial?.text ?? '') : '';
    const added = text.startsWith(before) ? text.slice(before.length) : '';
    partial = { item, text };
    return added === '' ? [] : [{ type: 'transcriptDelta', text: added }];
  }

  /** Records the name of a call from its item, and reports the call once its arguments are complete. */
  function callItem(item: JsonObject, event: JsonObject, isWhole: boolean, events: ProviderEvent[]): void {
    const callId = idOf(item.call_id);
    // The item of a cancelled response has incomplete arguments.
    if (item.type !== 'function_call' || callId === undefined || item.status === 'incomplete') return;
    if (calls.has(callId)) return;
    const itemId = idOf(item.id);
    if (itemId !== undefined) remember(callIds, itemId, callId);
    if (typeof item.name === 'string' && item.name !== '') remember(names, callId, item.name.slice(0, MAX_ID));
    const early = unnamed.get(callId);
    if (early && names.has(callId)) call(callId, early.responseId, early.args, events);
    else if (isWhole) call(callId, responseOf(event, events), argumentsOf(item), events);
  }

  function callArguments(event: JsonObject, events: ProviderEvent[]): void {
    const callId = idOf(event.call_id) ?? callIds.get(idOf(event.item_id) ?? '');
    // Without an id it cannot be answered; `response.done` repeats it.
    if (callId === undefined || calls.has(callId)) return;
    if (typeof event.name === 'string' && event.name !== '') remember(names, callId, event.name.slice(0, MAX_ID));
    const responseId = responseOf(event, events);
    const args = argumentsOf(event);
    if (names.has(callId)) call(callId, responseId, args, events);
    else if (unnamed.size < MAX_UNNAMED) unnamed.set(callId, { responseId, args });
  }

  function call(callId: string, responseId: string, args: string, events: ProviderEvent[]): void {
    unnamed.delete(callId);
    if (calls.add(callId)) {
      events.push({ type: 'functionCall', responseId, callId, name: names.get(callId) ?? '', args });
    }
  }

  function done(event: JsonObject): ProviderEvent[] {
    const events: ProviderEvent[] = [];
    const response = isObject(event.response) ? event.response : {};
    const isKnown = namedResponse(event) !== undefined;
    const output = Array.isArray(response.output) ? response.output.filter(isObject) : [];
    for (const item of output) callItem(item, event, true, events);
    const responseId = isKnown || events.length > 0 ? responseOf(event, events) : null;
    for (const [callId, early] of unnamed) {
      if (early.responseId === responseId) call(callId, early.responseId, early.args, events);
    }
    if (responseId !== null) running.delete(responseId);
    half = undefined;
    return [
      ...events,
      ...usageOf(response.usage),
      {
        type: 'responseDone',
        responseId,
        ...(typeof response.status === 'string' && { status: response.status.slice(0, MAX_ID) }),
        ...shortfall(event, response),
      },
    ];
  }

  function failure(event: JsonObject): ProviderEvent {
    const found = errorIn(event);
    const error = isObject(found) ? found : event;
    const text = errorText(found).slice(0, MAX_ERROR);
    const code = wordOf(error.code);
    if (code === 'session_expired' || isExpiry(text)) isExpired = true;
    const param = typeof error.param === 'string' ? error.param.slice(0, MAX_ID) : '';
    if (error.event_id === SETTINGS_MESSAGE || /^session(?:\.|$)/.test(param)) {
      return { type: 'settingsRefused', setting: redact(param || 'session'), message: inWords(text) };
    }
    const isHarmless =
      isExpired ||
      HARMLESS_CODES.has(code) ||
      HARMLESS.test(text) ||
      wordOf(error.event_id ?? event.event_id).startsWith(OPTIONAL_MESSAGE);
    const message = inWords(text);
    return isHarmless ? { type: 'notice', message } : { type: 'error', message, ...adviceOn(error) };
  }

  function read(text: string): ProviderEvent[] {
    const event = readEvent(text);
    if (!event) return [failed(NOT_AN_EVENT)];
    const { type } = event;
    const item = isObject(event.item) ? event.item : {};
    const events: ProviderEvent[] = [];
    const transcription = TRANSCRIPTION.exec(type)?.[1];
    if (transcription) return transcript(transcription, event);
    if (READY.has(type)) {
      if (type === 'session.updated') isConfigured = true;
      const { model, expires_at: end } = isObject(event.session) ? event.session : ({} as JsonObject);
      events.push({
        type: 'ready',
        ...(typeof model === 'string' && { model: model.slice(0, MAX_ID) }),
        // OpenAI gives it in seconds since the epoch.
        ...(Number.isFinite(end) && (end as number) > 0 && { expiresIn: (end as number) * 1000 - now() }),
      });
    } else if (AUDIO_DELTA.has(type)) {
      audio(event, events);
    } else if (TEXT_DELTA.has(type)) {
      const responseId = responseOf(event, events);
      if (typeof event.delta === 'string') events.push({ type: 'textDelta', responseId, text: event.delta });
    } else if (AUDIO_DONE.has(type)) {
      events.push({ type: 'audioDone', responseId: responseOf(event, events) });
    } else if (type === 'response.created') {
      responseOf(event, events);
    } else if (type === 'response.output_item.added') {
      responseOf(event, events);
      callItem(item, event, false, events);
    } else if (type === 'response.function_call_arguments.done') {
      callArguments(event, events);
    } else if (type === 'response.output_item.done' || type === 'conversation.item.done') {
      callItem(item, event, true, events);
    } else if (type === 'response.done') {
      return done(event);
    } else if (type === 'rate_limits.updated') {
      limits(event);
    } else if (type === 'error') {
      events.push(failure(event));
    }
    return events;
  }

  return {
    read,
    committed() {
      transcripts.clear();
    },
    get isExpired() {
      return isExpired;
    },
    get isConfigured() {
      return isConfigured;
    },
  };
}

function usageOf(value: unknown): ProviderEvent[] {
  const usage = readUsage(value);
  return usage ? [{ type: 'usage', usage }] : [];
}

function responseIdIn({ response, item, response_id: id }: JsonObject): string | undefined {
  const ids = [isObject(response) ? response.id : undefined, isObject(item) ? item.response_id : undefined, id];
  return ids.map(idOf).find((found) => found !== undefined);
}

const idOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' && value.length <= MAX_ID ? value : undefined;

/** Not `String(value)`, which throws for an object such as `{"toString": null}`. */
const wordOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : '';

/** Longer ones are not useful JSON. */
const argumentsOf = ({ arguments: args }: JsonObject): string =>
  typeof args === 'string' && args.length <= MAX_ARGUMENTS ? args : '';

function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (oldest !== undefined && map.size > MAX_REMEMBERED) map.delete(oldest);
}

/** A bounded set of ids; `add` returns whether one is new. */
function remembering() {
  const ids = new Map<string, true>();
  return {
    has: (id: string) => ids.has(id),
    add(id: string): boolean {
      const isNew = !ids.has(id);
      remember(ids, id, true);
      return isNew;
    },
  };
}
