import * as fc from 'fast-check';
import type {
  ConversationItemInputAudioTranscriptionCompletedEvent,
  RealtimeResponseUsage,
} from 'openai/resources/realtime/realtime';
import { describe, expect, it } from 'vitest';
import { createNormalizer } from '../../../../../lib/voice/agent/provider/normalize.ts';
import type { ProviderEvent } from '../../../../../lib/voice/agent/provider/provider.ts';
import { NO_USAGE } from '../../../../../lib/voice/agent/usage.ts';

const SECRET = 'sk-secret';
const NOW = 1_700_000_000_000;
const normalizer = () =>
  createNormalizer(
    'OpenAI',
    (text) => text.replaceAll(SECRET, '<redacted>').slice(0, 300),
    () => NOW,
  );

/** The events of messages, one after the other. */
function eventsOf(...messages: unknown[]): ProviderEvent[] {
  const { read } = normalizer();
  return messages.flatMap((message) => read(typeof message === 'string' ? message : JSON.stringify(message)));
}

const CREATED = { type: 'response.created', response: { id: 'r' } };
const STARTED = { type: 'responseStarted', responseId: 'r' };
const base64 = (...bytes: number[]) => Buffer.from(bytes).toString('base64');
const call = (changes: object = {}) => ({
  id: 'i',
  type: 'function_call',
  call_id: 'c',
  name: 'svc_run_task',
  arguments: '{"text":"x"}',
  ...changes,
});
const CALL = { type: 'functionCall', responseId: 'r', callId: 'c', name: 'svc_run_task', args: '{"text":"x"}' };

describe('what is used', () => {
  const usage = {
    total_tokens: 253,
    input_tokens: 132,
    output_tokens: 121,
    input_token_details: { text_tokens: 119, audio_tokens: 13, cached_tokens: 64 },
    output_token_details: { text_tokens: 30, audio_tokens: 91 },
  } satisfies RealtimeResponseUsage;
  const counts = { ...NO_USAGE, input_tokens: 132, output_tokens: 121, input_audio_tokens: 13 };

  it('is reported of a response before its end, and of a transcript', () => {
    expect(eventsOf(CREATED, { type: 'response.done', response: { id: 'r', usage } })).toEqual([
      STARTED,
      { type: 'usage', usage: { ...counts, output_audio_tokens: 91, cached_tokens: 64 } },
      { type: 'responseDone', responseId: 'r' },
    ]);
    const completed = {
      type: 'conversation.item.input_audio_transcription.completed',
      item_id: 'i',
      content_index: 0,
      event_id: 'e',
      transcript: 'Hi',
      usage: { type: 'duration', seconds: 2.5 },
    } satisfies ConversationItemInputAudioTranscriptionCompletedEvent;
    expect(eventsOf(completed)).toEqual([
      { type: 'usage', usage: { ...NO_USAGE, transcribed_seconds: 2.5 } },
      { type: 'transcriptFinal', text: 'Hi' },
    ]);
  });

  it.each([null, 1, {}, { input_tokens: '3' }, { input_tokens: -1 }, { output_tokens: 1e300 }])(
    'is nothing for %j',
    (bad) => {
      expect(eventsOf(CREATED, { type: 'response.done', response: { id: 'r', usage: bad } })).toHaveLength(2);
    },
  );
});

describe('06 §9: session and transcripts', () => {
  it.each(['session.created', 'session.updated', 'conversation.created'])('%s is ready', (type) => {
    expect(eventsOf({ type, session: { model: 'm' } }, { type })).toEqual([
      { type: 'ready', model: 'm' },
      { type: 'ready' },
    ]);
  });

  describe.each(['conversation.item.', ''])('with the prefix %j', (prefix) => {
    const type = `${prefix}input_audio_transcription`;

    it.each(['delta', 'transcript', 'text'])('takes the text from %s', (member) => {
      expect(eventsOf({ type: `${type}.delta`, [member]: 'a' }, { type: `${type}.completed`, [member]: 'ab' })).toEqual(
        [
          { type: 'transcriptDelta', text: 'a' },
          { type: 'transcriptFinal', text: 'ab' },
        ],
      );
    });

    it('takes no transcript that is in progress for the final one', () => {
      const completed = (transcript: string, status?: string) => ({
        type: `${type}.completed`,
        item_id: '1',
        transcript,
        ...(status && { status }),
      });
      expect(
        eventsOf(
          completed('turn', 'in_progress'),
          completed('turn on', 'in_progress'),
          completed('turn on', 'in_progress'),
          completed('Turn off', 'in_progress'),
          completed('Turn off the light.', 'completed'),
          completed('Turn off the light.'),
        ),
      ).toEqual([
        { type: 'transcriptDelta', text: 'turn' },
        { type: 'transcriptDelta', text: ' on' },
        { type: 'transcriptFinal', text: 'Turn off the light.' },
      ]);
    });

    it('repeats no words of a transcript that began before the utterance ended', () => {
      const { read, committed } = normalizer();
      const state = (item_id: string, transcript: string) =>
        read(JSON.stringify({ type: `${type}.completed`, item_id, transcript, status: 'in_progress' }));
      const before = state('1', 'turn');
      committed();
      expect([before, state('1', 'turn on'), state('2', 'turn on again')].flat()).toEqual([
        { type: 'transcriptDelta', text: 'turn' },
        { type: 'transcriptDelta', text: ' on' },
        { type: 'transcriptDelta', text: 'turn on again' },
      ]);
      read(JSON.stringify({ type: `${type}.failed`, item_id: '2' }));
      expect(state('2', 'turn')).toEqual([{ type: 'transcriptDelta', text: 'turn' }]);
    });

    it('hears each utterance of a server that uses its ids again', () => {
      const { read, committed } = normalizer();
      const completed = (transcript: string) =>
        read(JSON.stringify({ type: `${type}.completed`, item_id: 'item_1', transcript }));
      const heard = ['one', 'two', 'two'].map((text) => {
        committed();
        return [completed(text), completed(text)];
      });
      const final = (text: string) => [[{ type: 'transcriptFinal', text }], []];
      expect(heard).toEqual([final('one'), final('two'), final('two')]);
    });

    it('ends an utterance once, by completed or done, and with an empty text too', () => {
      expect(
        eventsOf(
          { type: `${type}.completed`, item_id: '1', transcript: 'one' },
          { type: `${type}.done`, item_id: '1', transcript: 'one' },
          { type: `${type}.done`, item_id: '2', transcript: '' },
        ),
      ).toEqual([
        { type: 'transcriptFinal', text: 'one' },
        { type: 'transcriptFinal', text: '' },
      ]);
    });

    it('reports a failure', () => {
      expect(eventsOf({ type: `${type}.failed`, error: { message: 'x' } })).toEqual([{ type: 'transcriptFailed' }]);
    });
  });
});

describe('06 §9: responses', () => {
  it('start once, by their creation or their first item', () => {
    const item = { type: 'response.output_item.added', response_id: 'r', item: { type: 'message' } };
    expect(eventsOf(CREATED, item, CREATED)).toEqual([STARTED]);
    expect(eventsOf(item, CREATED)).toEqual([STARTED]);
  });

  it.each([
    [{ response: { id: 'r' }, item: { response_id: 'x' }, response_id: 'y' }],
    [{ item: { response_id: 'r' }, response_id: 'y' }],
    [{ response_id: 'r' }],
  ])('take their id from %j', (members) => {
    expect(eventsOf({ type: 'response.output_item.added', ...members })).toEqual([STARTED]);
  });

  it.each([
    'response.output_audio_transcript.delta',
    'response.audio_transcript.delta',
    'response.output_text.delta',
    'response.text.delta',
  ])('%s is text', (type) => {
    expect(eventsOf(CREATED, { type, response_id: 'r', delta: 'Hi' })).toEqual([
      STARTED,
      { type: 'textDelta', responseId: 'r', text: 'Hi' },
    ]);
  });

  it.each([
    ['response.output_audio.delta', 'delta'],
    ['response.audio.delta', 'audio'],
  ])('%s with %s is audio', (type, member) => {
    const event = { type, response_id: 'r', item_id: 'i', content_index: 1, [member]: base64(1, 2, 3, 4) };
    expect(eventsOf(CREATED, event)).toEqual([
      STARTED,
      { type: 'audioDelta', responseId: 'r', itemId: 'i', contentIndex: 1, pcm: new Uint8Array([1, 2, 3, 4]) },
    ]);
  });

  it.each(['response.output_audio.done', 'response.audio.done'])('%s ends the audio', (type) => {
    expect(eventsOf(CREATED, { type, response_id: 'r' })).toEqual([STARTED, { type: 'audioDone', responseId: 'r' }]);
  });

  it('joins a sample that is cut in two, within a response only', () => {
    const delta = (id: string, ...bytes: number[]) => ({
      type: 'response.audio.delta',
      response_id: id,
      delta: base64(...bytes),
    });
    const audio = eventsOf(delta('r', 1, 2, 3), delta('r', 4, 5), delta('s', 6, 7), delta('s', 8), delta('s', 9));
    expect(audio.flatMap((event) => (event.type === 'audioDelta' ? [[event.responseId, ...event.pcm]] : []))).toEqual([
      ['r', 1, 2],
      ['r', 3, 4],
      ['s', 6, 7],
      ['s', 8, 9],
    ]);
  });

  it('several in flight keep their events apart', () => {
    const text = (id: string, delta: string) => ({ type: 'response.text.delta', response_id: id, delta });
    const done = (id: string) => ({ type: 'response.done', response: { id, status: 'completed' } });
    const events = eventsOf(CREATED, text('s', 'S'), text('r', 'R'), done('r'), text('s', 's'), done('s'));
    expect(events.map((event) => ['responseId' in event && event.responseId, event.type])).toEqual([
      ['r', 'responseStarted'],
      ['s', 'responseStarted'],
      ['s', 'textDelta'],
      ['r', 'textDelta'],
      ['r', 'responseDone'],
      ['s', 'textDelta'],
      ['s', 'responseDone'],
    ]);
  });

  it('without ids belong to the latest one', () => {
    const events = eventsOf(
      { type: 'response.created' },
      { type: 'response.text.delta', delta: 'a' },
      { type: 'response.done' },
      { type: 'response.created' },
      { type: 'response.done' },
      { type: 'response.done' },
    );
    expect(events).toEqual([
      { type: 'responseStarted', responseId: 'response-1' },
      { type: 'textDelta', responseId: 'response-1', text: 'a' },
      { type: 'responseDone', responseId: 'response-1' },
      { type: 'responseStarted', responseId: 'response-2' },
      { type: 'responseDone', responseId: 'response-2' },
      { type: 'responseDone', responseId: null },
    ]);
  });

  it('say why they failed, redacted', () => {
    const response = { id: 'r', status: 'failed', status_details: { error: { message: `no credit for ${SECRET}` } } };
    expect(eventsOf(CREATED, { type: 'response.done', response }).at(-1)).toEqual({
      type: 'responseDone',
      responseId: 'r',
      status: 'failed',
      reason: 'failed',
      message: 'OpenAI Realtime error: no credit for <redacted>',
    });
  });

  it('06 §6.9: say why they are incomplete', () => {
    const response = { id: 'r', status: 'incomplete', status_details: { reason: 'content_filter' } };
    expect(eventsOf(CREATED, { type: 'response.done', response }).at(-1)).toEqual({
      type: 'responseDone',
      responseId: 'r',
      status: 'incomplete',
      reason: 'content_filter',
      message: 'OpenAI Realtime error: the response is incomplete: content_filter',
    });
  });

  it.each([
    ['Please try again in 1.2s.', 2],
    ['Please try again in 250ms.', 1],
    ['Please try again in 1m26.4s.', 87],
    ['Please try again in 2m.', 120],
    ['Please wait.', 31],
  ])('06 §6.9: advise when to try again after a rate limit: %s', (message, retryAfter) => {
    const limits = [
      { name: 'requests', remaining: 5, reset_seconds: 900 },
      { name: 'tokens', remaining: 0, reset_seconds: 30.5 },
    ];
    const error = { code: 'rate_limit_exceeded', message };
    const response = { id: 'r', status: 'failed', status_details: { error } };
    const events = eventsOf(
      CREATED,
      { type: 'rate_limits.updated', rate_limits: limits },
      { type: 'response.done', response },
    );
    expect(events.at(-1)).toMatchObject({ reason: 'rate_limit_exceeded', retryAfter });
    const reported = { type: 'rate_limits.updated', rate_limits: limits };
    // xAI may have the code and the message in the event itself, or beside its error.
    const { code } = error;
    for (const failure of [{ error }, error, { error: {}, ...error }, { error: { message }, code }]) {
      expect(eventsOf(reported, { type: 'error', ...failure })).toEqual([
        { type: 'error', message: `OpenAI Realtime error: ${message}`, retryAfter },
      ]);
    }
  });
});

describe('06 §9: function calls', () => {
  const ARGUMENTS = {
    type: 'response.function_call_arguments.done',
    response_id: 'r',
    item_id: 'i',
    call_id: 'c',
    arguments: '{"text":"x"}',
  };
  const ADDED = {
    type: 'response.output_item.added',
    response_id: 'r',
    item: call({ status: 'in_progress', arguments: '' }),
  };
  const DONE = { type: 'response.output_item.done', response_id: 'r', item: call({ status: 'completed' }) };
  const CONVERSATION_DONE = { type: 'conversation.item.done', item: call({ response_id: 'r' }) };
  const RESPONSE_DONE = { type: 'response.done', response: { id: 'r', status: 'completed', output: [call()] } };
  const END = { type: 'responseDone', responseId: 'r', status: 'completed' };
  const { name: _, ...nameless } = call();

  it.each([
    ['the arguments with a name', [{ ...ARGUMENTS, name: 'svc_run_task' }], [STARTED, CALL]],
    ['the item, then the arguments', [ADDED, ARGUMENTS], [STARTED, CALL]],
    ['the arguments, then the item', [ARGUMENTS, DONE], [STARTED, CALL]],
    ['the arguments, then the item that begins', [ARGUMENTS, ADDED], [STARTED, CALL]],
    ['the whole item', [CREATED, DONE], [STARTED, CALL]],
    ['the item of the conversation', [CREATED, CONVERSATION_DONE], [STARTED, CALL]],
    ['the end of the response', [CREATED, RESPONSE_DONE], [STARTED, CALL, END]],
    ['only the end of the response', [RESPONSE_DONE], [STARTED, CALL, END]],
    ['arguments whose id only the item has', [ADDED, { ...ARGUMENTS, call_id: undefined }], [STARTED, CALL]],
    [
      'all of them',
      [CREATED, ADDED, ARGUMENTS, DONE, CONVERSATION_DONE, RESPONSE_DONE, CONVERSATION_DONE, ARGUMENTS],
      [STARTED, CALL, END],
    ],
    [
      'a name that never comes',
      [ARGUMENTS, { ...RESPONSE_DONE, response: { id: 'r' } }],
      [STARTED, { ...CALL, name: '' }, { type: 'responseDone', responseId: 'r' }],
    ],
    [
      'a name that never comes, with a nameless item',
      [ARGUMENTS, { ...RESPONSE_DONE, response: { id: 'r', output: [nameless] } }],
      [STARTED, { ...CALL, name: '' }, { type: 'responseDone', responseId: 'r' }],
    ],
  ])('are known by %s', (_name, messages, events) => {
    expect(eventsOf(...messages)).toEqual(events);
  });

  it('every unseen call of a response comes before its end', () => {
    const second = call({ id: 'i2', call_id: 'c2', name: 'svc_cancel', arguments: '{}' });
    const output = [call(), { type: 'message' }, second, 'nonsense', null];
    expect(
      eventsOf(CREATED, DONE, { type: 'response.done', response: { id: 'r', status: 'completed', output } }),
    ).toEqual([
      STARTED,
      CALL,
      { type: 'functionCall', responseId: 'r', callId: 'c2', name: 'svc_cancel', args: '{}' },
      END,
    ]);
  });

  it('a call that was cut off is not reported', () => {
    const cut = call({ status: 'incomplete', arguments: '{"te' });
    const done = { type: 'response.done', response: { id: 'r', status: 'cancelled', output: [cut] } };
    expect(eventsOf(CREATED, { ...DONE, item: cut }, done)).toEqual([
      STARTED,
      { type: 'responseDone', responseId: 'r', status: 'cancelled' },
    ]);
  });

  it('without an id cannot be answered', () => {
    expect(eventsOf(CREATED, { ...DONE, item: call({ call_id: undefined }) })).toEqual([STARTED]);
  });

  it('come once per id in any order of any of their messages', () => {
    const messages = [CREATED, ADDED, ARGUMENTS, DONE, CONVERSATION_DONE, RESPONSE_DONE];
    fc.assert(
      fc.property(fc.shuffledSubarray([...messages, ...messages]), (order) => {
        const calls = eventsOf(...order).filter(({ type }) => type === 'functionCall');
        const isKnown = order.some(
          (one) => one !== CREATED && one !== ADDED && (one !== ARGUMENTS || order.includes(ADDED)),
        );
        expect(calls).toHaveLength(isKnown ? 1 : 0);
        expect(eventsOf(...order, ...order).filter(({ type }) => type === 'functionCall').length).toBeLessThan(2);
      }),
    );
  });
});

describe('06 §9: errors', () => {
  const error = (members: object) => ({ type: 'error', event_id: 'e', error: members });

  it.each([
    [{ message: 'bad', code: 'c', type: 't' }, 'bad'],
    [{ message: '', code: 'c', type: 't' }, 'c'],
    [{ type: 't' }, 't'],
    [{ message: `no ${SECRET}` }, 'no <redacted>'],
  ])('%j is an error', (members, text) => {
    expect(eventsOf(error(members))).toEqual([{ type: 'error', message: `OpenAI Realtime error: ${text}` }]);
  });

  it.each([
    [{ param: 'session.tools[0].name' }, 'session.tools[0].name'],
    [{ event_id: 'settings' }, 'session'],
  ])('06 §6.9: %j refuses the settings', (members, setting) => {
    expect(eventsOf(error({ message: 'bad', ...members }))).toEqual([
      { type: 'settingsRefused', setting, message: 'OpenAI Realtime error: bad' },
    ]);
  });

  it.each([
    [{ message: 'Cancellation failed: no active response found' }],
    [{ message: 'no active response' }],
    [{ message: 'Active response already in progress' }],
    [{ message: 'Conversation already has an active response in progress: resp_1' }],
    [{ code: 'conversation_already_has_active_response' }],
    [{ message: 'Error committing input audio buffer: buffer too small.' }],
    [{ message: 'the commit of an empty buffer' }],
    [{ code: 'input_audio_buffer_commit_empty' }],
    [{ message: 'unknown item', event_id: 'optional-1' }],
  ])('%j is harmless', (members) => {
    const reader = normalizer();
    expect(reader.read(JSON.stringify(error(members)))).toMatchObject([{ type: 'notice' }]);
    expect(reader.isExpired).toBe(false);
  });

  it.each([
    [{ message: 'Connection timed out due to inactivity.' }],
    [{ message: 'Your session hit the maximum duration of 60 minutes.', code: 'session_expired' }],
    [{ message: 'maximum session duration reached' }],
  ])('%j is the end of an old or idle session', (members) => {
    const reader = normalizer();
    expect(reader.read(JSON.stringify(error(members)))).toMatchObject([{ type: 'notice' }]);
    expect(reader.isExpired).toBe(true);
  });

  it.each(['code', 'event_id'])('a %s that has no text form is ignored', (name) => {
    expect(eventsOf(error({ message: 'x', [name]: { toString: null } }))).toEqual([
      { type: 'error', message: 'OpenAI Realtime error: x' },
    ]);
  });

  it.each(['not json', '[]', 'null', '{}', '{"type":7}'])('a message that is %s is an error', (text) => {
    expect(eventsOf(text)).toMatchObject([{ type: 'error' }]);
  });

  it.each(['AAA', 'AA-_', 7, null, undefined])('audio of %j is an error, and starts nothing', (delta) => {
    expect(eventsOf({ type: 'response.audio.delta', response_id: 'r', delta })).toMatchObject([
      { type: 'error', message: expect.stringContaining('not valid base64') },
    ]);
  });

  it('a long text costs no more than a short one', () => {
    const text = 'timed out '.repeat(300_000);
    expect(eventsOf(error({ message: text }))).toMatchObject([{ type: 'error' }]);
  });
});

it('reads anything without throwing', () => {
  const types = fc.constantFrom(
    'session.created',
    'response.created',
    'response.done',
    'response.output_item.added',
    'response.output_item.done',
    'conversation.item.done',
    'response.function_call_arguments.done',
    'response.audio.delta',
    'response.audio.done',
    'response.text.delta',
    'input_audio_transcription.done',
    'error',
    'unknown',
  );
  const member = fc.oneof(
    fc.jsonValue(),
    fc.record({ id: fc.jsonValue(), call_id: fc.jsonValue(), type: fc.constant('function_call') }),
  );
  const message = fc.record(
    { type: types, response: member, item: member, error: member, session: member, delta: member, call_id: member },
    { requiredKeys: ['type'] },
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(message, fc.jsonValue()), { maxLength: 20 }), (messages) => {
      const started = new Set<string>();
      for (const event of eventsOf(...messages)) {
        if (event.type === 'responseStarted') started.add(event.responseId);
        else if ('responseId' in event && event.responseId !== null) expect(started).toContain(event.responseId);
      }
    }),
  );
});
