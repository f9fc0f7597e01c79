import { expect, it } from 'vitest';
import { createEndpointPolicy } from '../../../lib/push/endpoint.ts';

const policy = createEndpointPolicy([
  'ntfy.example.org',
  'push.lan:8443',
  '192.168.1.5',
  '127.0.0.1:9000',
  '[fd00::7]:99',
]);

it.each([
  'https://fcm.googleapis.com/fcm/send/abc:APA91b',
  'https://updates.push.services.mozilla.com/wpush/v2/gAAAA',
  'https://web.push.apple.com/QGuQyavXutnMH',
  'https://wns2-par02p.notify.windows.com/w/?token=BQYAAA',
  'https://ntfy.sh/upAbCdEf?up=1',
  'https://ntfy.example.org/up1',
  'https://push.lan:8443/x',
  'https://192.168.1.5/x',
  'http://127.0.0.1:9000/x',
  'https://[fd00::7]:99/x',
])('§6: %s is an endpoint', (endpoint) => {
  expect(policy.read(endpoint).href).toBe(endpoint);
});

it.each([
  'http://fcm.googleapis.com/fcm/send/abc',
  'https://fcm.googleapis.com:8443/fcm/send/abc',
  'https://fcm.googleapis.com.evil.example/x',
  'https://evilfcm.googleapis.com/x',
  'https://push.apple.com.evil.example/x',
  'https://user@fcm.googleapis.com/x',
  'https://user:secret@fcm.googleapis.com/x',
  'https://fcm.googleapis.com@127.0.0.1/x',
  'https://fcm.googleapis.com/x#fragment',
  'https://127.0.0.1/x',
  'https://127.0.0.1:9001/x',
  'https://127.1/x',
  'https://0x7f000001/x',
  'https://2130706433/x',
  'https://[::1]/x',
  'https://[::ffff:127.0.0.1]/x',
  'https://[::ffff:7f00:1]/x',
  'https://169.254.169.254/latest/meta-data',
  'https://localhost/x',
  'https://push.lan/x',
  'http://ntfy.example.org/up1',
  'http://192.168.1.5/x',
  'ftp://fcm.googleapis.com/x',
  'javascript:alert(1)',
  'https://',
  '',
  `https://fcm.googleapis.com/${'x'.repeat(2048)}`,
  null,
  7,
  {},
])('§6: refuses %s', (endpoint) => {
  expect(() => policy.read(endpoint)).toThrow(/^endpoint /);
});

it('§6: connects to public addresses, and to others only where they are listed', () => {
  for (const address of [
    '142.250.1.95',
    '2a00:1450:4001::5f',
    '192.168.1.5',
    '::ffff:192.168.1.5',
    '127.0.0.1',
    'fd00::7',
  ]) {
    expect([address, policy.mayConnect(address)]).toEqual([address, true]);
  }
  for (const address of [
    '10.0.0.1',
    '127.0.0.2',
    '169.254.169.254',
    '192.168.1.6',
    '::1',
    '::ffff:10.0.0.1',
    'fe80::1',
  ]) {
    expect([address, policy.mayConnect(address)]).toEqual([address, false]);
  }
});
