import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RelayError } from '../../../lib/errors.ts';
import { parseCapabilitiesRequest } from '../../../lib/models/request.ts';

const models = [{ provider: 'p', model: 'm' }];

describe('parsing a capabilities request (contract 07 §3)', () => {
  it('trims strings and fills in defaults', () => {
    expect(parseCapabilitiesRequest({ models: [{ provider: ' p ', model: '\tm\n', more: 1 }], extra: true })).toEqual({
      profile: 'default',
      refresh: false,
      models,
    });
    for (const profile of [null, '', '  ']) {
      expect(parseCapabilitiesRequest({ schema_version: 1, profile, models }).profile).toBe('default');
    }
    expect(parseCapabilitiesRequest({ profile: ' work ', refresh: true, models })).toMatchObject({
      profile: 'work',
      refresh: true,
    });
    const largest = [{ provider: 'p'.repeat(128), model: ` ${'m'.repeat(512)} ` }];
    expect(parseCapabilitiesRequest({ models: largest }).models[0]?.model).toHaveLength(512);
  });

  it('any body is either a bounded request or a refusal with a code', () => {
    const pair = fc.record({
      provider: fc.oneof(fc.string(), fc.anything()),
      model: fc.oneof(fc.string(), fc.anything()),
    });
    const body = fc.oneof(
      fc.anything(),
      fc.record(
        {
          schema_version: fc.oneof(fc.constant(1), fc.anything()),
          profile: fc.oneof(fc.string({ maxLength: 300 }), fc.anything()),
          refresh: fc.oneof(fc.boolean(), fc.anything()),
          models: fc.oneof(fc.array(fc.oneof(pair, fc.anything()), { maxLength: 70 }), fc.anything()),
        },
        { requiredKeys: [] },
      ),
    );
    fc.assert(
      fc.property(body, (value) => {
        try {
          const request = parseCapabilitiesRequest(value);
          expect(request.profile.length).toBeGreaterThan(0);
          expect(request.profile.length).toBeLessThanOrEqual(128);
          expect(request.models.length).toBeLessThanOrEqual(64);
          for (const { provider, model } of request.models) {
            expect([provider.trim(), model.trim()]).toEqual([provider, model]);
          }
        } catch (error) {
          expect(error).toBeInstanceOf(RelayError);
          expect(error).toMatchObject({
            kind: 'invalid',
            message: expect.stringMatching(/^[a-z_]+$/),
            extra: { schema_version: 1 },
          });
        }
      }),
    );
  });
});
