import type { EventBody } from '../../socket/types.ts';
import type { ProviderEvent } from '../provider/provider.ts';
import { usageMember } from '../usage.ts';
import { releaseFloor, takeFloor } from './floor.ts';
import type { ActiveResponse, ResponseRequest } from './state.ts';
import type { Step } from './step.ts';

/** The provider's half of region P: one response in flight, the others queued (contract 06 §6.1). */

/** A request waits so long for the response in flight. */
const RESPONSE_WAIT = 3000;
/** Milliseconds for which a request that was cancelled before its response started may still start. */
const ORPHAN_TTL = 10_000;
/** Milliseconds for which a response is held back that may belong to a cancelled request. */
const SUSPECT_WAIT = 1500;
const MAX_ENDED = 32;
const MAX_CALLS = 256;
const MAX_HELD_CALLS = 8;
/** Characters of a response that are remembered, so that another one can continue after them. */
const MAX_SAID = 2000;

type Response = Extract<ProviderEvent, { responseId: string | null }>;

/** Requests a response, sent once the one in flight has ended. Replaces a queued one of the same kind. */
export function request(step: Step, wanted: ResponseRequest): void {
  const { turn } = step.state;
  turn.queue = [...turn.queue.filter(({ kind }) => kind !== wanted.kind), wanted];
  if (turn.active?.isDropped) cancelActive(step);
}

export function withdraw(step: Step, kind: ResponseRequest['kind']): void {
  const { turn } = step.state;
  turn.queue = turn.queue.filter((other) => other.kind !== kind);
}

/** Sends the next request, if nobody speaks. */
export function advanceQueue(step: Step): void {
  const { turn, floor, link } = step.state;
  const [next, ...others] = turn.queue;
  if (!next) step.clearTimer('response');
  else if (turn.active) {
    if (!step.isSet('response')) step.setTimer('response', RESPONSE_WAIT);
  } else if (floor.speaker === 'free' && link.phase === 'up') {
    turn.queue = others;
    step.clearTimer('response');
    if (next.kind !== 'delivery') turn.isSuppressing = false;
    turn.active = activeResponse(next);
    step.do({ type: 'request', request: next });
    if (others.length > 0) step.setTimer('response', RESPONSE_WAIT);
  }
}

export const activeResponse = (request: ResponseRequest): ActiveResponse => ({
  request,
  id: null,
  isDropped: false,
  isSuspect: false,
  isAnnounced: false,
  hasSpoken: false,
  isSpoken: false,
  said: '',
  hasCalls: false,
  heldCalls: [],
  isRefused: false,
});

/** The response in flight took too long for the queued request. */
export function responseTimedOut(step: Step): void {
  const kind = step.state.turn.active?.request.kind;
  cancelActive(step);
  if (kind === 'delivery') step.raise({ type: 'deliveryCancelled' });
}

/** Cancels the response in flight, which frees its place at once. `isSilent`: the caller notifies the client. */
export function cancelActive(step: Step, { isSilent = false } = {}): void {
  const { turn } = step.state;
  const response = turn.active;
  if (!response) return;
  step.provider({ type: 'cancel' });
  turn.active = null;
  releaseFloor(step, 'provider');
  step.clearTimer('suspect');
  if (response.id === null) {
    turn.orphans = (step.at < turn.orphansUntil ? turn.orphans : 0) + 1;
    turn.orphansUntil = step.at + ORPHAN_TTL;
    return;
  }
  endId(step, response.id);
  if (isHeld(step, response)) step.do({ type: 'discard', hold: response.id });
  else if (response.isAnnounced) {
    if (response.hasSpoken) step.do({ type: 'truncate', isCertain: true });
    if (!isSilent) step.emit(doneEvent(step, response.id, { ...labelsOf(step, response), cancelled: true }));
  }
}

/** Id of the response in flight, as known to the client. */
export function shownId(step: Step): string | null {
  const { active: response } = step.state.turn;
  return response?.isAnnounced && !isHeld(step, response) ? response.id : null;
}

function endId(step: Step, id: string): void {
  const { turn } = step.state;
  if (!turn.ended.includes(id)) turn.ended = [...turn.ended, id].slice(-MAX_ENDED);
}

/** True while the events of the response are held back. */
function isHeld({ state }: Step, { request, isSuspect }: ActiveResponse): boolean {
  return isSuspect || (request.kind === 'delivery' && state.delivery.current?.phase === 'requested');
}

/** Labels for the events of a response of the provider. */
const labelsOf = (step: Step, { request }: ActiveResponse) =>
  request.kind === 'delivery' ? { delivery: step.state.delivery.current?.label ?? 'forced_summary' } : {};

/** `voice.response.started`. */
export const startedEvent = ({ state, config }: Step, id: string, members: object): EventBody => ({
  type: 'voice.response.started',
  provider: config.provider,
  model: config.model,
  voice: config.voice,
  session_id: config.sessionId,
  ...(state.chatSessionId !== null && { chat_session_id: state.chatSessionId }),
  response_id: id,
  ...members,
});

/** `voice.response.done`. */
export const doneEvent = ({ state, config }: Step, id: string | null, members: object): EventBody => ({
  type: 'voice.response.done',
  provider: config.provider,
  model: config.model,
  voice: config.voice,
  event_log_path: config.eventLogPath,
  ...(state.chatSessionId !== null && { chat_session_id: state.chatSessionId }),
  response_id: id,
  ...usageMember(state.usage),
  ...members,
});

/** An event of a provider response. */
export function responseEvent(step: Step, event: Response): void {
  const { turn } = step.state;
  if (event.type === 'responseStarted') started(step, event.responseId);
  else if (event.type === 'responseDone') done(step, event);
  else if (!turn.active || turn.active.id !== event.responseId) {
    if (event.type !== 'functionCall') return;
    step.mark('voice.response.call_dropped', { call_id: event.callId, tool_name: event.name });
  } else if (turn.active.isDropped) {
    if (event.type === 'functionCall') step.mark('voice.response.call_dropped', { call_id: event.callId });
  } else content(step, turn.active, event);
}

function started(step: Step, id: string): void {
  const { turn, delivery, floor } = step.state;
  if (turn.ended.includes(id) || turn.active?.id === id) return;
  if (turn.active?.isSuspect && turn.active.id !== null) {
    // Providers answer in order, so the previous response was that of the cancelled request.
    dropOrphan(step, turn.active, turn.active.id);
  }
  const isOrphanDue = turn.orphans > 0 && step.at < turn.orphansUntil;
  if (turn.active && turn.active.id !== null) {
    step.mark('voice.response.suppressed', { response_id: id });
    endId(step, id);
  } else if (turn.active) {
    turn.active.id = id;
    turn.active.isSuspect = isOrphanDue;
    if (isOrphanDue) step.setTimer('suspect', SUSPECT_WAIT);
    announce(step, turn.active, id);
  } else {
    // Unrequested: an answer to the user, unless it belongs to something cancelled or a delivery is due.
    const isDropped = isOrphanDue || turn.isSuppressing || delivery.current !== null || floor.speaker === 'relay_tts';
    if (isOrphanDue) turn.orphans--;
    turn.active = { ...activeResponse({ kind: 'user', prompt: null }), id, isDropped };
    if (isDropped) step.mark('voice.response.suppressed', { response_id: id });
    else announce(step, turn.active, id);
  }
}

function dropOrphan(step: Step, response: ActiveResponse, id: string): void {
  const { turn } = step.state;
  turn.orphans = Math.max(0, turn.orphans - 1);
  endId(step, id);
  step.do({ type: 'discard', hold: id });
  step.clearTimer('suspect');
  releaseFloor(step, 'provider');
  turn.active = activeResponse(response.request);
  if (response.request.kind === 'delivery') step.raise({ type: 'deliveryRestarted' });
}

/** Sends an event of the response, or holds it back. */
const holdOf = (step: Step, response: ActiveResponse, id: string): string | undefined =>
  isHeld(step, response) ? id : undefined;

function announce(step: Step, response: ActiveResponse, id: string): void {
  response.isAnnounced = true;
  step.emit(startedEvent(step, id, labelsOf(step, response)), holdOf(step, response, id));
}

function content(step: Step, response: ActiveResponse, event: Exclude<Response, { type: 'responseStarted' }>): void {
  const isDelivery = response.request.kind === 'delivery';
  const labels = labelsOf(step, response);
  switch (event.type) {
    case 'textDelta': {
      const { responseId: id, text } = event;
      const body = { type: 'voice.response.delta', delta: text, response_id: id, source: 'provider', ...labels };
      step.emit(body, holdOf(step, response, id));
      response.said = (response.said + text).slice(-MAX_SAID);
      if (isDelivery) step.raise({ type: 'deliveryText', text });
      break;
    }
    case 'audioDelta': {
      const { responseId, pcm, itemId, contentIndex } = event;
      if (!takeFloor(step)) break;
      response.hasSpoken = true;
      const { sampleRate } = step.config;
      step.audio({ responseId, pcm, sampleRate, itemId, contentIndex, labels }, holdOf(step, response, responseId));
      if (isDelivery) step.raise({ type: 'deliveryAudio', bytes: pcm.length });
      break;
    }
    case 'audioDone': {
      const { responseId: id } = event;
      releaseFloor(step, 'provider');
      response.isSpoken = true;
      if (response.hasSpoken)
        step.emit({ type: 'voice.output_audio.done', response_id: id, ...labels }, holdOf(step, response, id));
      break;
    }
    case 'functionCall':
      call(step, response, event);
      break;
  }
}

function call(step: Step, response: ActiveResponse, event: Extract<Response, { type: 'functionCall' }>): void {
  const { turn } = step.state;
  const { callId, name, args } = event;
  if (turn.calls.includes(callId)) return;
  turn.calls = [...turn.calls, callId].slice(-MAX_CALLS);
  response.hasCalls = true;
  const asked = { callId, name, args, hasSpoken: response.hasSpoken };
  if (!response.isSuspect) step.raise({ type: 'call', ...asked, isDelivery: response.request.kind === 'delivery' });
  else if (response.heldCalls.length < MAX_HELD_CALLS) response.heldCalls = [...response.heldCalls, asked];
}

function done(step: Step, event: Extract<Response, { type: 'responseDone' }>): void {
  const { turn } = step.state;
  const response = turn.active;
  const id = event.responseId;
  if (id !== null && turn.ended.includes(id)) {
    retryRefused(step);
    return;
  }
  if (!response || (id !== null && response.id !== null && response.id !== id)) return;
  if (response.isSuspect && response.id !== null && event.status === 'cancelled') {
    dropOrphan(step, response, response.id);
    return;
  }
  settleSuspect(step);
  turn.active = null;
  releaseFloor(step, 'provider');
  if (response.id !== null) endId(step, response.id);
  if (event.status !== 'failed' && event.status !== 'cancelled') step.state.link.tries = 0;
  if (response.isDropped) return;
  if (response.request.kind === 'delivery') {
    step.raise({ type: 'deliveryEnded', id: response.id ?? id, hasCalls: response.hasCalls, cut: cutOf(event) });
    return;
  }
  if (response.hasCalls) {
    step.mark('voice.response.intermediate_done', { response_id: response.id });
    return;
  }
  const cut = cutOf(event);
  if (event.retryAfter !== undefined || (cut.incomplete && !response.hasSpoken)) {
    const members = { provider: step.config.provider, ...adviceOf(event) };
    step.error(event.message ?? 'the provider could not answer', members);
  }
  step.emit(doneEvent(step, response.id ?? id, response.hasSpoken ? cut : {}));
}

/** Members of `voice.response.done` for an answer that was cut after speech began (contract 06 §6.9). */
const cutOf = ({
  status,
  reason,
}: Extract<Response, { type: 'responseDone' }>): { incomplete?: true; reason?: string } =>
  status === 'incomplete' || status === 'failed' ? { incomplete: true, reason: reason ?? status } : {};

/** Advice of a `voice.error` for a rate limit, in seconds. */
export const adviceOf = ({ retryAfter }: { retryAfter?: number }): { retry_after_s?: number } =>
  retryAfter === undefined ? {} : { retry_after_s: retryAfter };

/** The suspect response is the requested one. */
export function settleSuspect(step: Step): void {
  const response = step.state.turn.active;
  if (!response?.isSuspect || response.id === null) return;
  response.isSuspect = false;
  step.state.turn.orphans = 0;
  step.clearTimer('suspect');
  if (response.request.kind === 'delivery') step.raise({ type: 'deliveryText', text: '' });
  if (!isHeld(step, response)) step.do({ type: 'release', hold: response.id });
  const isDelivery = response.request.kind === 'delivery';
  for (const asked of response.heldCalls) step.raise({ type: 'call', ...asked, isDelivery });
  response.heldCalls = [];
}

/** The provider starts no response before one is fully cancelled, which will be soon. */
export function refusedForNow(step: Step): void {
  const { active: response } = step.state.turn;
  if (response?.id === null) response.isRefused = true;
}

function retryRefused(step: Step): void {
  const { active: response } = step.state.turn;
  if (!response?.isRefused || response.id !== null) return;
  response.isRefused = false;
  step.do({ type: 'request', request: response.request });
}

/** The provider sent an error in place of a requested response. False if none was pending. */
export function refused(step: Step): boolean {
  const { turn } = step.state;
  const response = turn.active;
  if (!response || response.id !== null) return false;
  turn.active = null;
  if (response.request.kind === 'delivery') step.raise({ type: 'deliveryRefused' });
  return response.request.kind === 'delivery';
}

/**
 * The connection was lost with the response in flight. A response that had not started is requested again, and for a
 * half-spoken one the rest, unless a request of the same kind is queued already (contract 06 §6.9).
 */
export function setAside(step: Step): void {
  const { turn } = step.state;
  const response = turn.active;
  turn.active = null;
  turn.orphans = 0;
  turn.ended = [];
  turn.calls = [];
  releaseFloor(step, 'provider');
  step.clearTimer('response');
  step.clearTimer('suspect');
  if (!response || response.isDropped) return;
  const { request: wanted, id } = response;
  const isDelivery = wanted.kind === 'delivery';
  if (id !== null && isHeld(step, response)) {
    step.do({ type: 'discard', hold: id });
    if (isDelivery) step.raise({ type: 'deliveryRestarted' });
    again(step, wanted);
  } else if (id === null || (response.said === '' && !response.hasSpoken && !response.hasCalls)) {
    if (id !== null) step.mark('voice.response.intermediate_done', { response_id: id });
    again(step, wanted);
  } else if (response.hasCalls) step.mark('voice.response.intermediate_done', { response_id: id });
  else if (response.isSpoken) {
    if (isDelivery) step.raise({ type: 'deliveryEnded', id, hasCalls: false, cut: {} });
    else step.emit(doneEvent(step, id, {}));
  } else {
    const labels = labelsOf(step, response);
    if (response.hasSpoken) step.emit({ type: 'voice.output_audio.done', response_id: id, ...labels });
    step.mark('voice.response.intermediate_done', { response_id: id });
    const { prompt } = wanted;
    const before = prompt?.type === 'rest' ? prompt.said : '';
    const result = prompt?.type === 'delivery' || prompt?.type === 'rest' ? prompt.result : undefined;
    const said = (before + response.said).slice(-MAX_SAID);
    again(step, { kind: wanted.kind, prompt: { type: 'rest', said, ...(result && { result }) } });
  }
}

function again(step: Step, wanted: ResponseRequest): void {
  const { turn } = step.state;
  if (!turn.queue.some(({ kind }) => kind === wanted.kind)) turn.queue = [wanted, ...turn.queue];
}
