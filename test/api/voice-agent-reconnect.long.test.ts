import { expect, it } from 'vitest';
import { describeMatrix } from '../support/relay.ts';
import { openAgent, runTask, saidIn, typesOf } from '../support/voice/agent.ts';
import { holdRuns } from '../support/voice/agent-api.ts';
import { sinePcm } from '../support/voice/audio.ts';
import type { VoiceEvent } from '../support/voice/client.ts';
import type { Conversation, Script } from '../support/voice/realtime-provider.ts';

const ANSWER = 'Two meetings on Thursday: dentist at nine and lunch with Kim.';
const say = (text: string) => ({ type: 'response.create', text });
const ofType = (events: readonly VoiceEvent[], type: string) => events.filter((event) => event.type === type);

/** The conversation on the connection of that number, once it has its settings. */
async function conversation({ conversations }: Script, at: number): Promise<Conversation> {
  await expect.poll(() => conversations[at]?.sent('session.update').length).toBe(1);
  return conversations[at] ?? expect.fail();
}

/** The first message, which has the moment of the call in its instructions, without that. */
function settingsOf(talk: Conversation): string {
  const settings = JSON.stringify(talk.sent('session.update')[0]);
  const moment = /Local date [\d-]{10}, local time [\d:]{8},/;
  expect(settings).toMatch(moment);
  return settings.replace(moment, 'Now,');
}

const items = (talk: Conversation) =>
  talk.sent('conversation.item.create').map(({ item }) => {
    const { role, content } = item as { role?: string; content?: { text: string }[] };
    return [role, content?.[0]?.text];
  });

/** What the first response is asked for with. */
const wordsOf = (talk: Conversation): string => JSON.stringify(talk.sent('response.create')[0]);

/** The relay says that the provider was lost and is back, in time. */
function expectGap(events: readonly VoiceEvent[], reason = 'provider_disconnected'): void {
  expect(ofType(events, 'voice.provider.reconnecting')).toMatchObject([{ reason }]);
  const [back] = ofType(events, 'voice.provider.reconnected');
  expect(back?.gap_ms).toBeLessThan(20_000);
  expect(ofType(events, 'voice.error')).toEqual([]);
}

describeMatrix('a provider that goes away (contract 06 §6.9)', (start) => {
  it('in the middle of a run is dialled again, knows what was said, and speaks the result once', async () => {
    const { client, api, script } = await openAgent(start, {
      turns: [{ text: 'Hello!' }, runTask('x'), { text: ANSWER }],
    });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Hi'));
    await client.through('voice.response.done');
    client.send(say('Do it'));
    const began = await client.through('svc.run.started');
    (await conversation(script, 0)).reset();
    const back = await client.through('voice.provider.reconnected');
    expectGap(back);
    const first = await conversation(script, 0);
    const next = await conversation(script, 1);
    expect(settingsOf(next)).toBe(settingsOf(first));
    finish();
    const rest = await client.through('voice.response.done');
    expect(saidIn(rest)).toBe(ANSWER);
    expect(items(next).slice(0, 3)).toEqual([
      ['user', 'Hi'],
      ['assistant', 'Hello!'],
      ['user', 'Do it'],
    ]);
    // It knows nothing of the call on the other connection.
    expect(items(next)[3]?.[1]).toContain('Result of svc_run_task');
    expect(typesOf([...began, ...back, ...rest]).filter((type) => type === 'svc.run.completed')).toHaveLength(1);
    expect(api.runs).toHaveLength(1);
  });

  it('at its session limit, in a turn, goes on with that turn', async () => {
    const { client, script } = await openAgent(start, { turns: [{ isOpen: true }, { text: 'Here I am.' }] });
    client.send(say('Are you there?'));
    await client.next('voice.response.started');
    const first = await conversation(script, 0);
    first.fail({ code: 'session_expired', message: 'Your session hit the maximum duration of 60 minutes.' });
    const events = await client.through('voice.response.done');
    expectGap(events, 'session_expired');
    expect(saidIn(events)).toBe('Here I am.');
    expect(items(await conversation(script, 1))).toEqual([['user', 'Are you there?']]);
  });

  it('in the middle of an answer is asked for the rest of it', async () => {
    const { client, script } = await openAgent(start, {
      turns: [{ text: 'The first half', audio: [new Uint8Array(4800)], isOpen: true }, { text: ' and the second.' }],
    });
    client.send(say('Tell me'));
    await client.next('voice.output_audio.delta');
    (await conversation(script, 0)).reset();
    const events = await client.through('voice.response.done');
    expectGap(events);
    expect(saidIn(events)).toBe(' and the second.');
    const next = await conversation(script, 1);
    expect(items(next)).toEqual([
      ['user', 'Tell me'],
      ['assistant', 'The first half'],
    ]);
    expect(wordsOf(next)).toContain('The user has heard: The first half');
  });

  it('while a run is in the background speaks its result once', async () => {
    const { client, api, script } = await openAgent(start, {
      turns: [runTask('a long one', { mode: 'background' }), { text: 'I have begun.' }, { text: ANSWER }],
    });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    await client.through('voice.response.done');
    (await conversation(script, 0)).reset();
    expectGap(await client.through('voice.provider.reconnected'));
    finish();
    const events = await client.through('voice.response.done');
    expect(saidIn(events)).toBe(ANSWER);
    expect(ofType(events, 'svc.run.background_completed')).toMatchObject([{ ok: true }]);
    expect(ofType(client.events, 'svc.run.cancelled')).toEqual([]);
    expect(ofType(client.events, 'voice.response.delta').filter(({ delta }) => delta === ANSWER)).toHaveLength(1);
  });

  it('while the user speaks gets every word of them', async () => {
    const { client, script } = await openAgent(start, { transcripts: ['All of it'], turns: [{ text: 'Understood.' }] });
    const chunk = sinePcm(0.1, 24_000);
    let chunks = 0;
    const speak = () => {
      const audio_base64 = Buffer.from(chunk).toString('base64');
      client.send({ type: 'input_audio.append', audio_base64, sample_rate: 24_000, chunk_id: ++chunks });
    };
    for (let n = 0; n < 5; n++) speak();
    const first = await conversation(script, 0);
    await expect.poll(() => first.heard).toBe(5 * chunk.length);
    first.reset();
    for (let n = 0; n < 5; n++) speak();
    await client.next('voice.provider.reconnecting');
    client.send({ type: 'input_audio.commit' });
    const events = await client.through('voice.response.done');
    expectGap(client.events);
    expect(saidIn(events)).toBe('Understood.');
    const sent = (await conversation(script, 1)).sent('input_audio_buffer.append');
    const audio = Buffer.concat(sent.map(({ audio }) => Buffer.from(String(audio), 'base64')));
    expect(audio.equals(Buffer.concat(Array(10).fill(chunk)))).toBe(true);
    expect(ofType(client.events, 'voice.input_audio.received').filter(({ duplicate }) => duplicate)).toEqual([]);
  });

  it('before its transcript of an utterance has the user asked to say it again', async () => {
    const { client, script } = await openAgent(start, { turns: [{ text: 'Could you say that again?' }] });
    const audio_base64 = Buffer.from(sinePcm(0.2, 24_000)).toString('base64');
    client.send({ type: 'input_audio.append', audio_base64, sample_rate: 24_000 });
    client.send({ type: 'input_audio.commit' });
    const first = await conversation(script, 0);
    await expect.poll(() => first.sent('input_audio_buffer.commit')).toHaveLength(1);
    first.reset();
    expect(saidIn(await client.through('voice.response.done'))).toBe('Could you say that again?');
    expect(wordsOf(await conversation(script, 1))).toContain('last words of the user were lost');
  });

  it('five times in a row keeps the session, the turn and the run', async () => {
    const { client, api, script } = await openAgent(start, {
      turns: [runTask('x', { mode: 'background' }), { text: 'I have begun.' }, { text: ANSWER }],
    });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    await client.through('voice.response.done');
    for (let losses = 0; losses < 5; losses++) {
      (await conversation(script, losses)).reset();
      await client.through('voice.provider.reconnected');
    }
    finish();
    expect(saidIn(await client.through('voice.response.done'))).toBe(ANSWER);
    expect(ofType(client.events, 'voice.error')).toEqual([]);
  });

  it('while nothing goes on is dialled when the user speaks again', async () => {
    const { client, script } = await openAgent(start, { turns: [{ text: 'Good morning.' }] });
    const first = await conversation(script, 0);
    first.reset();
    await expect.poll(() => first.socket.isOver).toBe(true);
    client.send(say('Good morning'));
    const events = await client.through('voice.response.done');
    expect(saidIn(events)).toBe('Good morning.');
  });

  it('for good ends the session, and the run delivers a message to the phone', async () => {
    const { client, api, script, provider, target } = await openAgent(start, { turns: [runTask('x')] });
    const finish = holdRuns(api, ANSWER);
    client.send(say('Do it'));
    await client.next('svc.run.started');
    provider.refuseSockets(503);
    (await conversation(script, 0)).reset();
    const error = await client.next('voice.error');
    expect(error).toMatchObject({ error_code: 'provider_disconnected' });
    expect(ofType(client.events, 'svc.run.promoted').at(-1)).toMatchObject({ run_id: 'run-1' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    finish();
    const history = async () =>
      (await target.operator('/phone/history', { headers: { 'x-svc-operator': '1' } })).json() as Promise<{
        items: { text: string }[];
      }>;
    await expect.poll(async () => (await history()).items.map(({ text }) => text)).toEqual([ANSWER]);
  });
});
