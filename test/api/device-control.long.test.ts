import { get } from 'node:http';
import { expect, it } from 'vitest';
import { devices, named } from '../support/device-control.ts';
import { echo, type Phone, startPhone } from '../support/phone.ts';
import { bearer, describeMatrix, pair } from '../support/relay.ts';

/** `fetch` rejects a 407. */
const plainGet = (url: string, headers: Record<string, string>) =>
  new Promise<{ status?: number; body: string }>((resolve, reject) => {
    get(url, { headers }, (response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode, body }));
    }).on('error', reject);
  });

describeMatrix('Device Control over HTTP (contract 03 §2, 4)', (start) => {
  it('§4.3: every status from 200 to 599 reaches the caller', async () => {
    const target = await start();
    const phone = await startPhone(target);
    for (let status = 200; status <= 599; status++) {
      phone.script = () => ({ status, result: { status } });
      const empty = [204, 205, 304].includes(status);
      const answer = await plainGet(`${target.url}/ping`, phone.headers);
      expect(answer).toEqual({ status, body: empty ? '' : JSON.stringify({ status }) });
    }
    phone.script = echo;
    expect((await target.fetch('/ping', { headers: phone.headers })).status).toBe(200);
  });
});

describeMatrix('choosing the device (contract 03 §1.2, 3)', (start) => {
  it('addresses a hundred phones at a time', { timeout: 300_000 }, async () => {
    const target = await start();
    const phones: Phone[] = [];
    for (let at = 0; at < 100; at++) phones.push(await named(target, `many-${at}`, `Phone number ${at}`));
    expect((await devices(target)).count).toBe(100);
    const caller = await pair(target);
    const answers = await Promise.all(
      phones.map(async (_, at) => {
        const response = await target.fetch(`/events?limit=${at}&device=phonenumber${at}`, {
          headers: bearer(caller.token),
        });
        return (await response.json()).params.limit;
      }),
    );
    expect(answers).toEqual(phones.map((_, at) => String(at)));
    for (const { commands } of phones) expect(commands).toHaveLength(1);
  });
});
