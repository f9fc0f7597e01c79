import { expect, it } from 'vitest';
import { readPageAddresses } from '../../../handlers/web/app/page-addresses.ts';
import { goneAddressChecks } from '../../../lib/operator/doctor/relay.ts';
import { goneText, readGoneAddresses } from '../../../lib/operator/gone-addresses.ts';

const info = {
  gone_addresses: [
    { urls: ['ws://192.0.2.7:8767'], devices: [{ token_prefix: 'aaaaaaaa', device_name: 'Pixel\u202e 9' }] },
  ],
};
const answer = { method: 'GET' as const, url: '', status: 200, ok: true, json: info, error: null };

it('contract 11 §2: the doctor warns of devices that know only an address that is gone, and says what to do', () => {
  const [check] = goneAddressChecks(answer as never);
  expect(check).toMatchObject({
    id: 'relay-gone-address',
    status: 'warn',
    summary: 'ws://192.0.2.7:8767 is no address of this machine any more, and Pixel 9 knows no other',
    next: expect.stringContaining('svc pair'),
  });
  for (const json of [{}, null, { gone_addresses: 7 }])
    expect(goneAddressChecks({ ...answer, json } as never)).toEqual([]);
  expect(goneAddressChecks({ ...answer, ok: false } as never)).toEqual([]);
  const names = Array.from({ length: 7 }, (_, at) => ({ device_name: `D${at}` }));
  const [many] = readGoneAddresses({ gone_addresses: [{ urls: ['a', 'b'], devices: names }] });
  expect(many && goneText(many)).toBe(
    'a and b are no addresses of this machine any more, and D0, D1, D2, D3, D4 and 2 more know no other',
  );
});

it('contract 11 §2: a page keeps the addresses under which it can be opened too, best first, without its own', () => {
  const route = (role: string, priority: number, url: string) => ({ role, priority, relay: { url } });
  const endpoints = [
    route('lan', 2, 'ws://192.0.2.8:8767'),
    route('tailscale', 0, 'wss://home.example.ts.net:8767'),
    route('public', 1, 'wss://relay.example/svc/ws'),
    route('direct', 3, 'ws://192.0.2.7:8767'),
  ];
  expect(readPageAddresses(endpoints, 'http://192.0.2.7:8767/')).toEqual([
    'https://home.example.ts.net:8767/app/',
    'https://relay.example/svc/app/',
    'http://192.0.2.8:8767/app/',
  ]);
  expect(readPageAddresses('x', 'http://192.0.2.7:8767/')).toBeNull();
});
