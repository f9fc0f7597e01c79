import { expect, it } from 'vitest';
import { createShiftedClock } from '../support/clock.ts';
import { authenticate, bearer, describeMatrix, pair, registerCode } from '../support/relay.ts';

const DAY = 24 * 3_600_000;

describeMatrix(
  'a start with a wrong clock (contract 11 §2)',
  (start) => {
    it('refuses the devices that it ends for now only, and takes them back once the clock is right', async () => {
      const clock = createShiftedClock();
      const target = await start({ clock });
      const phone = await pair(target);
      const { sessions } = await (await target.fetch('/sessions', { headers: bearer(phone.token) })).json();
      expect(sessions).toHaveLength(1);
      await target.restart(async () => {
        clock.offset = 40 * DAY;
      });

      const refusal = async (credentials: Record<string, unknown>) => (await authenticate(target, credentials)).frame;
      for (const credentials of [
        { session_token: phone.token },
        { refresh_token: phone.refreshToken },
        { session_token: phone.token, refresh_token: phone.refreshToken },
      ]) {
        const { type, payload } = await refusal(credentials);
        expect(type).toBe('auth.fail');
        // The words by which phones in the field keep their pairing (01 §3.6).
        expect(payload.reason).toMatch(/auth.*timeout.*clock/);
      }
      const http = await target.fetch('/sessions', { headers: bearer(phone.token) });
      expect([http.status, http.headers.get('retry-after'), (await http.json()).error]).toEqual([
        503,
        '60',
        expect.stringContaining('clock'),
      ]);
      const voice = await target.fetch('/voice/config', { headers: bearer(phone.token) });
      expect([voice.status, voice.headers.get('retry-after')]).toEqual([503, '60']);
      // Nobody else learns of the clock, a code decides as ever, and no attempt counts as a guess.
      expect((await refusal({ session_token: crypto.randomUUID() })).payload.reason).toBe('Invalid session token');
      expect((await refusal({ session_token: phone.token, pairing_code: 'NOCODE' })).payload.reason).toBe(
        'Invalid pairing code or session token',
      );
      await registerCode(target, 'CLOCK1');
      for (let count = 0; count < 20; count++) await refusal({ session_token: phone.token });
      expect((await refusal({ session_token: phone.token, pairing_code: 'CLOCK1' })).type).toBe('auth.ok');

      await target.restart(async () => {
        clock.offset = 0;
      });
      expect((await refusal({ session_token: phone.token })).type).toBe('auth.ok');
    });
  },
  ['node'],
);
