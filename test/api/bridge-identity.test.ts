import { expect, it } from 'vitest';
import { echo, type Phone, reconnect, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, type Paired, pair, post, type Target } from '../support/relay.ts';

const VICTIM = 'victim-phone';

const startVictim = (target: Target): Promise<Phone> =>
  startPhone(target, { device: { device_id: VICTIM, device_name: 'Pixel', client_surface: 'android' } });

/** Reads the victim's id as every paired device can. */
async function stolenId(target: Target, thief: Paired): Promise<string> {
  const { sessions } = await (await target.fetch('/sessions', { headers: bearer(thief.token) })).json();
  return sessions.find((row: { device_name: string }) => row.device_name === 'Pixel').device_id;
}

/** Asks for an SMS as a host tool does. */
async function sendSms(target: Target, caller: Paired, query = ''): Promise<{ status: number; body: unknown }> {
  const answer = await target.fetch(`/send_sms${query}`, {
    ...post({ to: '+15550100', body: 'the code is 123456' }),
    headers: bearer(caller.token),
  });
  return { status: answer.status, body: await answer.json() };
}

const forged = () => ({ status: 200, result: { ok: true, by: 'the thief' } });
/** A status that claims the id in every place that the relay reads. */
const claim = (id: string) => ({ device: { device_id: id, name: 'Pixel' }, device_id: id, deviceId: id, id });

describeMatrix('a phone with the id of another one (contract 03 §1.2)', (start) => {
  it('gets no command of a connected phone by presenting its id when it connects', async () => {
    const target = await start();
    const tool = await pair(target);
    const victim = await startVictim(target);
    const id = await stolenId(target, await pair(target));
    for (const own of ['thief-phone', 'unknown']) {
      const paired = await startPhone(target, { device: { device_id: own, device_name: 'Thief' }, status: null });
      const thief = await reconnect(target, { ...paired, id }, { status: claim(id), script: forged });
      await thief.report(claim(id));
      for (const query of ['', `?device=${id}`, '?device=pixel']) {
        const { status, body } = await sendSms(target, tool, query);
        expect(JSON.stringify(body), `${own} ${query}`).not.toContain('the thief');
        expect(status, `${own} ${query}`).toBe(200);
      }
      expect(thief.commands).toEqual([]);
      thief.client.close();
      await thief.client.closed();
    }
    expect(victim.commands).toHaveLength(6);
    const { active_device_id: active } = await (await target.operator('/bridge/devices')).json();
    expect(active).toBe(VICTIM);
  });

  it('does not end the commands that wait for the other one', async () => {
    const target = await start();
    const tool = await pair(target);
    const victim = await startVictim(target);
    victim.script = () => undefined;
    const answer = sendSms(target, tool);
    const command = await victim.received();
    const paired = await startPhone(target, { device: { device_id: 'unknown', device_name: 'Thief' }, status: null });
    const thief = await reconnect(target, { ...paired, id: VICTIM }, { status: claim(VICTIM), script: forged });
    thief.answer(command, forged());
    await thief.settled();
    victim.answer(command, { result: { ok: true, by: 'the victim' } });
    expect(await answer).toEqual({ status: 200, body: { ok: true, by: 'the victim' } });
  });

  it('gets no command that names a phone which is away', async () => {
    const target = await start();
    const tool = await pair(target);
    const victim = await startVictim(target);
    victim.client.close();
    await expect.poll(async () => (await (await target.operator('/bridge/devices')).json()).count).toBe(0);
    const claiming = await startPhone(target, {
      device: { device_id: 'unknown', device_name: 'Thief' },
      status: claim(VICTIM),
      script: forged,
    });
    const called = await startPhone(target, {
      device: { device_id: 'thief-phone', device_name: VICTIM },
      status: claim(VICTIM),
      script: forged,
    });
    expect(await sendSms(target, tool, `?device=${VICTIM}`)).toMatchObject({ status: 404 });
    expect([...claiming.commands, ...called.commands]).toEqual([]);
    // The thieves are reachable under names of their own.
    expect((await sendSms(target, tool, '?device=thief-phone')).status).toBe(200);
    const back = await reconnect(target, victim, { script: echo });
    expect(await sendSms(target, tool, `?device=${VICTIM}`)).toMatchObject({ status: 200 });
    expect(back.commands).toHaveLength(1);
  });

  it('does not replace the state that the relay keeps of a phone which is away', async () => {
    const target = await start();
    const victim = await startPhone(target, {
      device: { device_id: VICTIM, device_name: 'Pixel' },
      status: { battery: 7 },
    });
    victim.client.close();
    await expect.poll(async () => (await (await target.operator('/bridge/devices')).json()).count).toBe(0);
    const paired = await startPhone(target, { device: { device_id: 'unknown', device_name: 'Thief' }, status: null });
    const thief = await reconnect(target, { ...paired, id: VICTIM }, { status: { battery: 99 } });
    thief.client.close();
    await expect.poll(async () => (await (await target.operator('/bridge/devices')).json()).count).toBe(0);
    const back = await reconnect(target, victim, { status: null });
    await back.settled();
    const { devices } = await (await target.operator('/bridge/devices')).json();
    expect(devices).toMatchObject([{ device_id: VICTIM, battery: 7 }]);
  });
});
