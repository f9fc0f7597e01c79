import { EventSourceParserStream } from 'eventsource-parser/stream';
import { expect, it, onTestFinished } from 'vitest';
import { run } from '../support/cli.ts';
import { createTestClock } from '../support/clock.ts';
import { startPushService } from '../support/push-service.ts';
import { authenticate, bearer, pair, post, startNodeTarget } from '../support/relay.ts';

const HOUR = 3_600_000;

it('a relay goes through 61 days: warnings, pushes, more time, the end, and what is left of it (11 §2)', async () => {
  const [service, clock] = [await startPushService(), createTestClock(Date.now())];
  const target = await startNodeTarget({ clock, env: { RELAY_PUSH_HOSTS: service.host } });
  onTestFinished(() => target.stop());
  const port = new URL(target.url).port;
  const svc = (...words: string[]) => run(words, { env: { SVC_HOME: target.agentHome, RELAY_PORT: port } });
  const json = async (...words: string[]) => JSON.parse((await svc(...words, '--json')).stdout);

  /** Pairs a device that has gone again, with a subscription to pushes. */
  async function paired(device_name: string, ttl_seconds?: number) {
    const device = { device_name, device_id: crypto.randomUUID() };
    const { token, prefix, client } = await pair(target, { device, policy: { ttl_seconds } });
    const subscription = service.subscription();
    await target.fetch('/push/subscribe', { ...post(subscription), headers: bearer(token) });
    client.terminate();
    const path = new URL(subscription.endpoint).pathname;
    /** What came, each once: a leap of time may cut an attempt, which is made again. */
    const pushes = () => {
      const came = service.notices.filter((notice) => notice.path === path).map(({ payload }) => payload);
      return [...new Map(came.map((payload) => [payload.message_id, payload])).values()];
    };
    return { token, prefix, pushes };
  }
  const [phone, tablet, guest] = [await paired('Pixel'), await paired('Tablet'), await paired('Guest', 8 * 86_400)];
  const watch = await paired('Watch', 0);

  // Who is said to end soon, with the day on which it was said.
  const said: Record<string, number[]> = { Pixel: [], Tablet: [], Guest: [], Watch: [] };
  let day = 0;
  async function follow() {
    const controller = new AbortController();
    onTestFinished(() => controller.abort());
    const { body } = await target.operator('/relay/events', { signal: controller.signal });
    const reader = (body as ReadableStream<Uint8Array>)
      .pipeThrough(new TextDecoderStream() as unknown as ReadableWritablePair<string, Uint8Array>)
      .pipeThrough(new EventSourceParserStream())
      .getReader();
    /** Reads up to the watch's connection, which comes after everything of the day. */
    return async () => {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error('the stream has ended');
        const { change, device_name } = JSON.parse(value.data) as Record<string, string>;
        if (value.event !== 'device') continue;
        if (change === 'ends_soon') said[device_name as string]?.push(day);
        if (change === 'connected' && device_name === 'Watch') return;
      }
    };
  }
  let read = await follow();

  const rows = async () =>
    (await (await target.operator('/relay/devices')).json()).devices as Record<string, unknown>[];
  const ending = async () => (await rows()).filter(({ ends_soon }) => ends_soon).map((row) => row.device_name);
  async function until(last: number): Promise<void> {
    while (day < last) {
      day++;
      for (let hour = 0; hour < 24; hour++) await clock.leap(HOUR);
      const { client, frame } = await authenticate(target, { session_token: watch.token });
      expect(frame.type).toBe('auth.ok');
      await read();
      client.terminate();
    }
  }
  /** Time goes on in small steps, in which a push arrives: asked when it is due, since a leap cuts what is under way. */
  const expectPushes = (counts: number[]) =>
    expect
      .poll(async () => {
        await clock.leap(1_000);
        return [phone, tablet, guest].map(({ pushes }) => pushes().length);
      })
      .toEqual(counts);
  const answer = async (token: string) => {
    const response = await target.fetch('/sessions', { headers: bearer(token) });
    return [response.status, (await response.json()).error];
  };

  // A short session warns at a quarter of its life.
  await until(5);
  expect(await ending()).toEqual([]);
  await until(6);
  expect(await ending()).toEqual(['Guest']);
  await expectPushes([0, 0, 1]);
  await until(9);
  // Said once a day.
  expect(said.Guest).toEqual([7, 8]);
  expect((await json('devices', '--ended')).sessions).toMatchObject([{ device_name: 'Guest', reason: 'expired' }]);

  // A restart on the way loses nothing, and says within a minute what ends soon.
  await until(22);
  expect(await ending()).toEqual([]);
  await until(23);
  expect((await ending()).sort()).toEqual(['Pixel', 'Tablet']);
  await target.restart();
  read = await follow();
  await clock.leap(60_000);
  const status = await json('status');
  expect(status.ending.map(({ name }: { name: string }) => name).sort()).toEqual(['Pixel', 'Tablet']);
  await until(26);
  expect(said.Pixel).toEqual(said.Tablet);
  // Once when it began, once within a minute of the restart, and once a day.
  for (const at of [24, 25, 26])
    expect(said.Tablet?.filter((each) => each === at).length, `day ${at}`).toBeGreaterThan(0);
  expect(said.Tablet?.length).toBeLessThanOrEqual(6);
  await expectPushes([0, 0, 1]);

  // One is given more time; its token stays. Only the other is called.
  expect((await svc('devices', 'extend', 'Pixel')).code).toBe(0);
  expect(await ending()).toEqual(['Tablet']);
  await until(27);
  await expectPushes([0, 1, 1]);
  expect(tablet.pushes()[0].type).toBe('ends');
  expect((await answer(tablet.token))[0]).toBe(200);

  await until(31);
  const [{ ended_at, reason }] = (await json('devices', '--ended')).sessions;
  expect(reason).toBe('expired');
  const date = new Date(ended_at * 1000).toISOString().slice(0, 10);
  expect(await answer(tablet.token)).toEqual([401, `session ended on ${date}: pair again`]);
  const { frame } = await authenticate(target, { session_token: tablet.token });
  expect(frame.payload).toEqual({ reason: `session ended on ${date}: pair again` });
  expect((await answer(phone.token))[0]).toBe(200);
  const ended = await svc('devices', '--ended');
  expect(ended.stdout).toMatch(/Tablet.*expired/);
  expect(target.log.filter((line) => line.includes('clock is')).join('\n')).toBe('');

  // The extended one is warned and called anew before its new end, on day 56.
  said.Pixel = [];
  await until(50);
  expect(await ending()).toEqual(['Pixel']);
  await until(53);
  await expectPushes([1, 1, 1]);
  await until(57);
  expect((await answer(phone.token))[0]).toBe(401);
  expect(said.Pixel.length).toBeGreaterThan(5);

  // What ended is listed for 30 days.
  const names = async () =>
    (await json('devices', '--ended')).sessions.map(({ device_name }: { device_name: string }) => device_name);
  expect(await names()).toEqual(['Pixel', 'Tablet']);
  await until(61);
  expect(await names()).toEqual(['Pixel']);
  expect((await rows()).map(({ device_name }) => device_name)).toEqual(['Watch']);
  expect(service.faults).toEqual([]);
});
