import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Candidate, orderCandidates } from '../../../lib/pairing/candidates.ts';

const roles = (candidates: Candidate[]) => candidates.map(({ role }) => role);
const proxy = (url: string, pin: string): Candidate => ({ role: 'plugin_proxy', proxy: { url, pin_sha256: pin } });

describe('the order of candidates (contract 08 §6.2)', () => {
  it('is by role, then as given, with new priorities; roles stay as they are', () => {
    const given: Candidate[] = [
      { role: 'outbound_broker', recommended: true },
      { role: 'lan', priority: 7, legacy: true },
      { role: 'LAN', priority: 0 },
      { role: 'wireguard', priority: 3 },
      { role: 'Plugin_Proxy' },
      { note: 'without a role' },
      { role: 'Public' },
      { role: 'TailScale', recommended: false },
    ];
    const ordered = orderCandidates(given);
    expect(roles(ordered)).toEqual([
      'TailScale',
      'Public',
      'Plugin_Proxy',
      'wireguard',
      undefined,
      'LAN',
      'lan',
      'outbound_broker',
    ]);
    expect(ordered.map(({ priority }) => priority)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(ordered.map(({ recommended }) => recommended)).toEqual([
      true,
      undefined,
      true,
      undefined,
      undefined,
      undefined,
      undefined,
      false,
    ]);
  });

  it('keeps the last pinned route to an origin, which has its present pin', () => {
    const ordered = orderCandidates([proxy('https://a', 'old'), proxy('https://b', 'b'), proxy('https://a', 'new')]);
    expect(ordered.map((candidate) => (candidate.proxy as { pin_sha256: string }).pin_sha256)).toEqual(['b', 'new']);
  });

  it('loses and adds nothing else', () => {
    const role = fc.constantFrom(
      'tailscale',
      'public',
      'lan',
      'outbound_broker',
      'x',
      '',
      'LAN',
      'constructor',
      '__proto__',
    );
    const candidate = fc.record({ role, legacy: fc.boolean(), id: fc.nat() });
    fc.assert(
      fc.property(fc.array(candidate), (given) => {
        const ordered = orderCandidates(given);
        expect(ordered.map(({ id }) => id).sort()).toEqual(given.map(({ id }) => id).sort());
        expect(ordered.every(({ priority }, at) => priority === at)).toBe(true);
        expect(orderCandidates(ordered)).toEqual(ordered);
      }),
    );
  });
});
