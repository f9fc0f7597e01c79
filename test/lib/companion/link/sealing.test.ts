import { expect, it } from 'vitest';
import { createSealing } from '../../../../lib/companion/link/sealing.ts';
import type { Pairing } from '../../../../lib/companion/link/settings.ts';
import type { IdentityFacts } from '../../../../lib/host/identity.ts';
import { createIdentities, isSignedBy } from '../../../../lib/host/node/identity.ts';
import { newBoxKey } from '../../../../lib/kit/box.ts';
import { base64url, utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { homeBoxText } from '../../../../lib/phone/sealed.ts';
import { createTestLog } from '../../../support/log.ts';

const identities = createIdentities();

async function identity() {
  const pem = await identities.generate('10.0.0.1', Date.now());
  const { pin, certDer } = identities.read(pem) as IdentityFacts;
  const sign = (key: string) => base64url(identities.sign(pem.key, utf8ToBytes(homeBoxText(key))));
  return { origin: { pin, certDer }, sign };
}

const endpoint = { role: 'plugin_proxy', url: 'wss://10.0.0.1:9443/relay/ws', priority: 0 };
const newPoint = async () => base64url((await newBoxKey()).point);

function device(pairing: Partial<Pairing> | null = null) {
  const log = createTestLog();
  const store = { deviceId: 'd', pairing: () => pairing as Pairing | null };
  return { log, sealing: createSealing({ store, log, isSignedBy }) };
}

it('contract 12 §4: takes home’s key only with the signature of the identity that the pairing link pins', async () => {
  const [home, stranger] = [await identity(), await identity()];
  const pinned = [{ ...endpoint, pinned: home.origin }];
  const key = await newPoint();
  const { log, sealing } = device();
  const taken = async (given: unknown, endpoints = pinned) => (await sealing.taken(given, endpoints, true)).box?.home;
  expect(await taken({ key, signature: home.sign(key) })).toBe(key);
  const wrong = [
    { key },
    { key, signature: stranger.sign(key) },
    { key, signature: home.sign(await newPoint()) },
    { key, signature: '' },
    { key: 'AAAA', signature: home.sign('AAAA') },
    undefined,
  ];
  for (const given of wrong) expect(await taken(given)).toBeUndefined();
  // The certificate is another one than that of the pin.
  const swapped = [{ ...endpoint, pinned: { pin: home.origin.pin, certDer: stranger.origin.certDer } }];
  expect(await taken({ key, signature: stranger.sign(key) }, swapped)).toBeUndefined();
  expect(log.lines.join('\n')).toContain('home has not signed its key with the identity of the pairing link');
});

it('takes the key on its word where the link pins nothing, and keeps the one that it has while home gives none', async () => {
  const key = await newPoint();
  const first = device();
  const { box } = await first.sealing.taken({ key }, [endpoint], true);
  expect(box?.home).toBe(key);
  const later = device({ box });
  expect(await later.sealing.authMember(false)).toEqual({ box_key: box?.public_key });
  expect((await later.sealing.taken(undefined, [endpoint], false)).box).toEqual(box);
  const other = await newPoint();
  expect((await later.sealing.taken({ key: other }, [endpoint], false)).box?.home).toBe(other);
  expect(later.log.lines.join('\n')).toContain('home has a new key');
});
