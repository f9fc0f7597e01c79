import { readFile } from 'node:fs/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { type FaultKind, startFlakyProxy } from '../support/flaky-proxy.ts';
import { describeMatrix, describeOnNode, pair, type Target, type TargetOptions } from '../support/relay.ts';
import { sinePcm } from '../support/voice/audio.ts';
import { audioOf, connectVoice, refusedVoice, type VoiceClient, type VoiceEvent } from '../support/voice/client.ts';
import { createOutput, speak } from '../support/voice/output.ts';
import { type Provider, startProvider } from '../support/voice/provider.ts';
import { stubPcm } from '../support/voice/stub.ts';

const KEY = 'sk-live-0123456789abcdef';
const OPENAI = { provider: 'openai_tts' };
const CREATE = { type: 'response.create', text: 'hello there' };

const envFor = (provider: Provider) => ({ OPENAI_API_KEY: KEY, OPENAI_BASE_URL: `${provider.url}/v1` });

/** A relay whose provider speaks when the test says so. */
async function withProvider(start: (options: TargetOptions) => Promise<Target>) {
  const provider = await startProvider();
  const target = await start({ env: envFor(provider) });
  return { provider, target, ...(await pair(target)) };
}

/** A client that is terminated after the test. */
async function connect(target: Pick<Target, 'url'>, path: string, token: string): Promise<VoiceClient> {
  const client = await connectVoice(target, path, token);
  onTestFinished(() => client.terminate());
  return client;
}

/** A session whose client has asked for speech, and the call that the relay makes for it. */
async function asked(target: Target, token: string, provider: Provider) {
  const session = await createOutput(target, token, OPENAI);
  const client = await connect(target, session.websocket_path, token);
  client.send(CREATE);
  return { session, client, call: await provider.call(0) };
}

/** A phone whose provider has begun to answer. */
async function speaking(start: Parameters<typeof withProvider>[0]) {
  const { provider, target, token } = await withProvider(start);
  const phone = await speak(target, { token }, OPENAI);
  onTestFinished(phone.stop);
  const call = await provider.call(0);
  call.begin();
  return { provider, phone, call };
}

const isHeard = (phone: { heard(): number }, count: number) =>
  vi.waitFor(() => expect(phone.heard()).toBeGreaterThanOrEqual(count));

describeMatrix('a phone that loses its network in the middle of a sentence (contract 05 §12)', (start) => {
  it('hears every sample once', async () => {
    const { provider, phone, call } = await speaking(start);
    const pcm = sinePcm(1, 24_000);
    for (let at = 0; at < pcm.length; at += 12_001) {
      const before = phone.heard();
      await call.write(pcm.subarray(at, at + 12_001));
      if (at > 0) await isHeard(phone, before + 1);
      phone.lose();
    }
    call.end();
    await phone.finished;
    expect(phone.audio()).toEqual(Buffer.from(pcm));
    expect(phone.connects()).toBeGreaterThan(3);
    expect(phone.closes.filter((code) => code >= 4001)).toEqual([]);
    expect(provider.calls).toHaveLength(1);
  });

  it.each(['cut', 'reset', 'stall', 'half-open'] as FaultKind[])('whose proxy does: %s', async (kind) => {
    const { provider, target, token } = await withProvider(start);
    const pcm = sinePcm(1, 24_000);
    const proxy = await startFlakyProxy({ port: Number(new URL(target.url).port), seed: 7, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const phone = await speak(target, { token }, { ...OPENAI, port: () => proxy.port });
    onTestFinished(phone.stop);
    const call = await provider.call(0);
    call.begin();
    await call.write(pcm.subarray(0, 9000));
    await isHeard(phone, 2);
    proxy.strike(kind, 'down');
    await call.write(pcm.subarray(9000, 30_000));
    // Nobody tells a phone that its network only swallows what is sent to it: it notices, and comes back.
    if (kind === 'stall' || kind === 'half-open') phone.changeRoute();
    await isHeard(phone, 6);
    await call.write(pcm.subarray(30_000));
    call.end();
    await phone.finished;
    expect(phone.audio()).toEqual(Buffer.from(pcm));
    expect(phone.connects()).toBe(2);
  });

  it('changes its network with both sockets open: the first is closed 4000', async () => {
    const { phone, call } = await speaking(start);
    const pcm = sinePcm(1, 24_000);
    for (let at = 0; at < pcm.length; at += 12_000) {
      const before = phone.heard();
      await call.write(pcm.subarray(at, at + 12_000));
      await isHeard(phone, before + 1);
      phone.changeRoute();
    }
    call.end();
    await phone.finished;
    expect(phone.audio()).toEqual(Buffer.from(pcm));
    // Sockets report their ends in any order.
    await vi.waitFor(() => expect(phone.closes.toSorted()).toEqual([1000, 4000, 4000, 4000, 4000]));
  });

  it('aborts the call to the provider when its session is closed', async () => {
    const { provider, target, token } = await withProvider(start);
    const { client, call } = await asked(target, token, provider);
    call.begin();
    await call.write(sinePcm(0.2, 24_000));
    await client.next('voice.audio.delta');
    client.send({ ...CREATE });
    expect((await client.next('voice.error')).message).toBe('response already running');
    client.send({ type: 'session.close' });
    expect((await client.closed()).code).toBe(1000);
    await vi.waitFor(() => expect(call.isAbandoned).toBe(true));
  });
});

describeMatrix(
  'a provider that outruns a detached phone (contract 05 §12)',
  (start) => {
    it('is read no further than 8 MiB, and nothing is lost', async () => {
      const { provider, target, token } = await withProvider(start);
      const pcm = Buffer.from(sinePcm(300, 24_000));
      const phone = await speak(target, { token }, OPENAI);
      onTestFinished(phone.stop);
      const call = await provider.call(0);
      call.begin();
      await call.write(pcm.subarray(0, 8192));
      await isHeard(phone, 1);
      phone.lose();
      let written = 8192;
      const writing = (async () => {
        for (; written < pcm.length; written += 65_536) await call.write(pcm.subarray(written, written + 65_536));
        call.end();
      })();
      await Promise.all([writing, phone.finished]);
      expect(phone.audio().equals(pcm)).toBe(true);
    });

    it('stays where the ring is full until the phone is back', async () => {
      const { provider, target, token } = await withProvider(start);
      const pcm = Buffer.from(sinePcm(400, 24_000));
      const { session, client: first, call } = await asked(target, token, provider);
      call.begin();
      await call.write(pcm.subarray(0, 4096 * 2));
      await first.next('voice.audio.delta');
      first.terminate();
      let written = 8192;
      const writing = (async () => {
        for (; written < pcm.length; written += 65_536) await call.write(pcm.subarray(written, written + 65_536));
        call.end();
      })();
      // The provider's writes stop: the ring, and what the two kernels buffer, are full.
      await vi.waitFor(async () => {
        const before = written;
        // The relay has had that many turns to read on.
        for (let turn = 0; turn < 50; turn++) await (await target.fetch('/health')).text();
        expect(written).toBe(before);
      });
      expect(written).toBeLessThan(pcm.length - 1024 * 1024);
      const second = await connect(target, session.websocket_path, token);
      second.send({ type: 'session.resume', resume_token: session.resume_token });
      const replayed = await second.through('voice.replay.done');
      expect(replayed.find(({ type }) => type === 'voice.replay.started')).not.toHaveProperty('gap');
      const bytes = replayed.reduce((sum, event) => sum + JSON.stringify(event).length, 0);
      expect(bytes).toBeGreaterThan(7 * 1024 * 1024);
      expect(bytes).toBeLessThan(9 * 1024 * 1024);
      let acknowledged = 0;
      second.socket.on('message', () => {
        const { audio_event_id = 0, event_id } = second.events.at(-1) as VoiceEvent;
        if ((audio_event_id as number) < acknowledged + 100) return;
        acknowledged = audio_event_id as number;
        second.send({ type: 'client.ack', event_id, audio_event_id });
      });
      second.send({ type: 'client.ack', audio_event_id: replayed.at(-2)?.audio_event_id });
      const rest = await second.through('voice.response.done');
      await writing;
      expect(audioOf([...replayed, ...rest]).equals(pcm)).toBe(true);
    });
  },
  ['node'],
);

/** A relay on a clock that the test moves; its provider does not exist. */
async function clocked(env: Record<string, string> = {}) {
  const clock = createTestClock();
  const target = await startBuiltTarget({ clock, env });
  onTestFinished(() => target.stop());
  const { token } = await pair(target);
  const session = async () => {
    const answer = await createOutput(target, token);
    const attach = () => connect(target, answer.websocket_path, token);
    const status = async () => (await refusedVoice(target, answer.websocket_path, token)).status;
    return { answer, attach, status };
  };
  return { clock, target, token, session };
}

/** The same with a provider. */
async function clockedProvider() {
  const provider = await startProvider();
  const clock = createTestClock();
  const target = await startBuiltTarget({ clock, hostEnv: () => envFor(provider) });
  onTestFinished(() => target.stop());
  const { token } = await pair(target);
  return { provider, clock, target, token };
}

describeOnNode('time (contract 05 §12)', () => {
  it('closes a session without a socket after five minutes; ten minutes later it is forgotten', async () => {
    const { clock, session } = await clocked();
    const { attach, status } = await session();
    await clock.advanceAsync(299_999);
    (await attach()).terminate();
    await vi.waitFor(async () => expect(await status()).toBe(410));
    const second = await session();
    await clock.advanceAsync(300_000);
    expect(await second.status()).toBe(410);
    await clock.advanceAsync(599_999);
    expect(await second.status()).toBe(410);
    await clock.advanceAsync(1);
    expect(await second.status()).toBe(404);
  });

  it('keeps a detached session for RELAY_VOICE_RESUME_TTL_MS', async () => {
    const { clock, target, session } = await clocked({ RELAY_VOICE_RESUME_TTL_MS: '5000' });
    const { answer, attach, status } = await session();
    expect(answer.resume_ttl_ms).toBe(5000);
    const first = await attach();
    first.send(CREATE);
    await first.next('voice.response.done');
    first.terminate();
    const second = await attach();
    second.send({ type: 'session.resume', resume_token: answer.resume_token });
    const replayed = await second.through('voice.replay.done');
    expect(audioOf(replayed)).toEqual(await stubPcm({ text: CREATE.text }));
    second.terminate();
    await vi.waitFor(() => expect(target.relay.voice.output.attached()).toBe(0));
    await clock.advanceAsync(4999);
    const late = await attach();
    await clock.advanceAsync(1);
    expect(await late.next('voice.session.resume_failed')).toMatchObject({ reason: 'resume_expired' });
    expect((await late.closed()).code).toBe(4008);
    expect(await status()).toBe(410);
  });

  it('gives a candidate ten seconds', async () => {
    const { clock, session } = await clocked();
    const { attach } = await session();
    const owner = await attach();
    await owner.next('voice.session.ready');
    const candidates = await Promise.all(Array.from({ length: 4 }, attach));
    const fifth = await attach();
    expect((await fifth.closed()).code).toBe(4009);
    // The relay has them all once it answers one of them.
    for (const candidate of candidates) {
      candidate.raw('{');
      await candidate.next('voice.error');
    }
    await clock.advanceAsync(10_000);
    for (const candidate of candidates) expect((await candidate.closed()).code).toBe(4009);
    owner.send({ type: 'session.close' });
    expect((await owner.closed()).code).toBe(1000);
  });

  it('fails a render without audio after 12 s, and lets go of the provider', async () => {
    const { clock, target, token, provider } = await clockedProvider();
    const { client, call } = await asked(target, token, provider);
    await clock.advanceAsync(12_000);
    expect(await client.next('voice.error')).toMatchObject({ message: 'no audio within 12 s', provider: 'openai_tts' });
    await vi.waitFor(() => expect(call.isAbandoned).toBe(true));
  });

  it('drops a phone that does not answer pings, and waits for it to come back', async () => {
    const { clock, target, session } = await clocked();
    const { attach, answer } = await session();
    const proxy = await startFlakyProxy({ port: target.port, seed: 1, faults: ['none'] });
    onTestFinished(() => proxy.close());
    const { token } = await pair(target);
    const own = await createOutput(target, token);
    const far = await connect({ url: `http://127.0.0.1:${proxy.port}` }, own.websocket_path, token);
    far.send(CREATE);
    await far.next('voice.response.done');
    const near = await attach();
    near.send({ type: 'session.start' });
    await near.next('voice.session.ready');
    expect(target.relay.voice.output.attached()).toBe(2);
    proxy.strike('stall');
    for (let round = 0; round < 2; round++) {
      const pinged = new Promise((resolve) => near.socket.once('ping', resolve));
      await clock.advanceAsync(10_000);
      if (round === 0) await pinged;
      // The pong is on its way; any message shows as well that the phone is there.
      near.raw('{');
      await near.next('voice.error');
    }
    await vi.waitFor(() => expect(target.relay.voice.output.attached()).toBe(1));
    expect(answer.resume_supported).toBe(true);
    expect(target.relay.voice.output.count()).toBe(2);
  });
});

describeOnNode('a relay that stops (contract 05 §15)', () => {
  it('closes voice sockets 1001, aborts calls, completes the logs, and leaves no timer', async () => {
    const { clock, target, token, provider } = await clockedProvider();
    const before = clock.pending;
    const { session, client, call } = await asked(target, token, provider);
    call.begin();
    await call.write(sinePcm(0.2, 24_000));
    await client.next('voice.audio.delta');
    await target.relay.voice.output.stop();
    expect((await client.closed()).code).toBe(1001);
    await vi.waitFor(() => expect(call.isAbandoned).toBe(true));
    expect(clock.pending).toBe(before);
    expect(await readFile(session.event_log_path, 'utf8')).toMatch(/"reason":"shutdown".*\n$/);
    const wav = await readFile(session.event_log_path.replace('.jsonl', '.wav'));
    expect(wav.readUInt32LE(40)).toBe(wav.length - 44);
  });
});

describeOnNode('many sessions', () => {
  it('leave nothing behind', async () => {
    const { clock, target, token } = await clocked();
    const before = clock.pending;
    for (let round = 0; round < 20; round++) {
      const phone = await speak(target, { token }, { text: `round ${round}` });
      await phone.finished;
      expect(phone.audio()).toEqual(await stubPcm({ text: `round ${round}` }));
    }
    await vi.waitFor(() => expect(target.relay.voice.output.count()).toBe(0));
    expect(clock.pending).toBe(before);
  });

  it('do not disturb each other, each with a network of its own', async () => {
    const { target, token } = await clocked();
    const proxies = await Promise.all(
      Array.from({ length: 8 }, (_, seed) =>
        startFlakyProxy({ port: target.port, seed, faults: ['cut', 'reset', 'none', 'cut'], after: [1500, 90_000] }),
      ),
    );
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.close()))));
    const phones = await Promise.all(
      proxies.map((proxy, at) => speak(target, { token }, { text: `text ${at}`, port: () => proxy.port })),
    );
    for (const [at, phone] of phones.entries()) {
      await phone.finished;
      expect(phone.audio()).toEqual(await stubPcm({ text: `text ${at}` }));
    }
  });
});
