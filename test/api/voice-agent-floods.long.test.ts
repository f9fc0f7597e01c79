import { expect, it } from 'vitest';
import { describeMatrix } from '../support/relay.ts';
import { openAgent, saidIn, sentTo } from '../support/voice/agent.ts';

const FLOOD = 1000;
const say = (text: string) => ({ type: 'response.create', text });

describeMatrix('floods (contract 06 §10)', (start) => {
  it('of a client are answered in order, and the session ends once', async () => {
    const { client, script } = await openAgent(start, { turns: [{ text: 'Still here.' }] });
    for (let n = 0; n < FLOOD; n++) {
      client.send({ type: 'svc.confirm', confirmation_id: `k${n}`, answer: 'allow' });
      client.send({ type: 'response.cancel' });
      client.send({ type: 'svc.result.respeak' });
      client.send({ type: 'playback.drained', played_audio_event_id: n });
      client.send({ type: 'client.ack', event_id: n });
    }
    await expect
      .poll(() => client.events.filter(({ type }) => type === 'svc.result.respeak_unavailable').length)
      .toBe(FLOOD);
    client.send(say('Are you there?'));
    await expect.poll(() => saidIn(client.events)).toContain('Still here.');
    const ids = client.events.map(({ event_id }) => event_id);
    expect(ids).toEqual(ids.map((_id, at) => at + 1));
    for (let n = 0; n < 100; n++) client.send({ type: 'session.close' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    await expect.poll(() => script.conversations[0]?.socket.isOver).toBe(true);
  });

  it('of function calls start one run, and queue three', async () => {
    const { api, client, script } = await openAgent(start, { turns: [] });
    // The run lasts until it is cancelled, or the tasks of the queue would follow it.
    api.onRun((run) => run.open());
    const socket = script.conversations[0]?.socket ?? expect.fail();
    const call = (call_id: string, name: string, args: object) =>
      socket.send({
        type: 'response.output_item.done',
        response_id: 'flood',
        item: { type: 'function_call', call_id, name, arguments: JSON.stringify(args) },
      });
    await socket.send({ type: 'response.created', response: { id: 'flood' } });
    for (let n = 0; n < 200; n++) {
      await call(`run-${n}`, 'svc_run_task', { text: `task ${n}` });
      await call(`run-${n}`, 'svc_run_task', { text: 'another text' });
      await call(`no-${n}`, `no_tool_${n}`, {});
    }
    // Refused names, and tasks beyond the queue and the running one.
    await expect.poll(() => sentTo(script, 'conversation.item.create').length).toBe(399);
    expect(client.events.filter(({ type }) => type === 'svc.run.queued')).toHaveLength(3);
    client.send({ type: 'response.cancel' });
    await client.next('svc.run.cancelled');
    expect(client.events.filter(({ type }) => type === 'svc.run.cancelled')).toHaveLength(1);
    client.send({ type: 'session.close' });
    expect(await client.closed()).toMatchObject({ code: 1000 });
    await expect.poll(() => socket.isOver).toBe(true);
  });
});
