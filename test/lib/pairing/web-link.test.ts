import { expect, it } from 'vitest';
import { pageLink } from '../../../lib/pairing/web-link.ts';

const payload = (url: string, endpoints: unknown[] = []) =>
  JSON.stringify({ svc: 3, relay: { url, code: 'ABC123' }, endpoints });
const route = (url: string, more: object = {}) => ({ role: 'x', relay: { url }, ...more });

it.each([
  ['of the direct address', payload('ws://192.168.1.20:8767'), 'http://192.168.1.20:8767/app/#code=ABC123'],
  ['below a path', payload('wss://example.com/relay/ws'), 'https://example.com/relay/app/#code=ABC123'],
  [
    'of a name with a certificate, if there is one',
    payload('ws://192.168.1.20:8767', [route('ws://100.64.0.1:8767'), route('wss://host.tail.ts.net')]),
    'https://host.tail.ts.net/app/#code=ABC123',
  ],
  [
    'of no pinned route, whose certificate a browser cannot check',
    payload('ws://192.168.1.20:8767', [route('wss://192.168.1.20:9443/relay', { proxy: {} })]),
    'http://192.168.1.20:8767/app/#code=ABC123',
  ],
])('contract 09 §5: the link of a browser is one %s', (_name, text, link) => {
  expect(pageLink(text)).toBe(link);
});

it('contract 09 §5: a relay that only this machine reaches has a link to localhost', () => {
  const text = payload('ws://192.168.1.20:8767');
  expect(pageLink(text, { local: { port: 8767, tls: false } })).toBe('http://localhost:8767/app/#code=ABC123');
});

it('the link carries the secret beside the code, so that wrong codes of others do not stop the pairing', () => {
  const text = JSON.stringify({ svc: 1, relay: { url: 'ws://192.0.2.1:8767', code: 'ABC123', secret: 's3cr-_t' } });
  expect(pageLink(text)).toBe('http://192.0.2.1:8767/app/#code=ABC123&secret=s3cr-_t');
  expect(pageLink(text, { published: 'https://relay.example/' })).toBe(
    'https://relay.example/app/#code=ABC123&secret=s3cr-_t',
  );
});
