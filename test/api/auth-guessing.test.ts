import { expect, it } from 'vitest';
import { attemptFrom, BEHIND_PROXY, describeMatrix, pair, post, registerCode, type Target } from '../support/relay.ts';

const WRONG = 'Invalid pairing code or session token';
/** In tens of seconds, since a reason must not contain 429 (§3.6). */
const RESTRICTED = 'pairing is restricted for 600 s';
/** Not the code of any test: those are letters only. */
const wrong = (index: number) => String(index).padStart(6, '0');
/** Addresses of one attacker, each in a /64 of its own. */
const network = (index: number) => `2001:db8:${index.toString(16)}::1`;

/** Wrong codes from ever new addresses, nine from each so that none is blocked. */
async function guessFromMany(target: Target, guesses: number): Promise<string[]> {
  const outcomes: string[] = [];
  for (let index = 0; index < guesses; index++) {
    outcomes.push(await attemptFrom(target, network(Math.floor(index / 9)), { pairing_code: wrong(index) }));
  }
  return outcomes;
}

/** Code and secret of a new QR payload. */
async function mint(target: Target): Promise<{ code: string; secret: string }> {
  const answer = await (await target.operator('/pairing/mint', post({ host: '192.0.2.1' }))).json();
  return JSON.parse(answer.qr_payload).relay;
}

describeMatrix('guessing pairing codes (contract 01 §4)', (start, runtime) => {
  it('a paired device does not buy more guesses with its own token', async () => {
    const target = await start(BEHIND_PROXY);
    const thief = await pair(target);
    let guesses = 0;
    for (let outcome = WRONG; outcome !== '429' && guesses < 50; guesses++) {
      outcome = await attemptFrom(target, '192.0.2.9', { pairing_code: wrong(guesses) });
      if (guesses % 9 === 8) await attemptFrom(target, '192.0.2.9', { session_token: thief.token });
    }
    // The tenth wrong code starts the block, which refuses the eleventh.
    expect(guesses).toBe(11);
    expect(await attemptFrom(target, '192.0.2.10', { session_token: thief.token })).toBe('auth.ok');
  });

  it('one attacker with many networks gets sixty guesses, and a host registration makes room for the owner', async () => {
    const target = await start(BEHIND_PROXY);
    await registerCode(target, 'KNOWNA');
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: 'KNOWNA', device_id: 'a' })).toBe('auth.ok');
    for (const code of ['TARGET', 'SECOND', 'OWNERS']) await registerCode(target, code);
    const { code: anonymous } = await (await target.operator('/pairing', { method: 'POST' })).json();

    expect(new Set(await guessFromMany(target, 61))).toEqual(new Set([WRONG]));
    // From here on not even the right code helps the attacker.
    expect(await attemptFrom(target, network(1_000), { pairing_code: 'TARGET' })).toBe(RESTRICTED);
    expect(await attemptFrom(target, network(1_001), { pairing_code: 'TARGET' })).toBe(RESTRICTED);
    // An address that has paired before may use a code that the host registered, and no other.
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: anonymous })).toBe(RESTRICTED);
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: 'SECOND' })).toBe('auth.ok');
    if (runtime === 'node') {
      expect(target.log.filter((line) => line.includes('wrong pairing codes within a minute'))).toEqual([
        expect.stringContaining('[WARNING]'),
      ]);
    }

    await registerCode(target, 'THIRDS');
    expect(await attemptFrom(target, '192.0.2.77', { pairing_code: 'OWNERS' })).toBe('auth.ok');
    expect(await attemptFrom(target, '192.0.2.78', { pairing_code: 'TARGET' })).toBe('auth.ok');
    expect(await attemptFrom(target, '192.0.2.79', { pairing_code: anonymous })).toBe('auth.ok');
  });

  it('codes that were guessed in vain are not used up by it', async () => {
    const target = await start(BEHIND_PROXY);
    await registerCode(target, 'WAITIN');
    await guessFromMany(target, 61);
    expect(await attemptFrom(target, network(1_000), { pairing_code: 'WAITIN' })).toBe(RESTRICTED);
    await target.operator('/pairing/mint', post({ host: '192.0.2.1' }));
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: 'WAITIN' })).toBe('auth.ok');
  });

  it('the secret of a QR code pairs while codes are restricted, and once (issue 23, 1.9)', async () => {
    const target = await start(BEHIND_PROXY);
    const { code, secret } = await mint(target);
    const { code: other, secret: otherSecret } = await mint(target);
    expect(secret).toMatch(/^[\w-]{22}$/);
    await guessFromMany(target, 61);

    // An old app sends the code alone, and is told why the right code does not help.
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: code })).toBe(RESTRICTED);
    const shown = { pairing_code: code, pairing_secret: secret };
    for (const wrongSecret of [otherSecret, `${secret}x`, `x${secret.slice(0, -1)}`]) {
      expect(await attemptFrom(target, '192.0.2.2', { ...shown, pairing_secret: wrongSecret })).toBe(WRONG);
    }
    expect(await attemptFrom(target, '192.0.2.3', { ...shown, pairing_code: 'NOSUCH' })).toBe(WRONG);
    expect(await attemptFrom(target, '192.0.2.3', shown)).toBe('auth.ok');
    expect(await attemptFrom(target, '192.0.2.3', shown)).toBe(WRONG);
    expect(await attemptFrom(target, '192.0.2.4', { pairing_code: other, pairing_secret: otherSecret })).toBe(
      'auth.ok',
    );
  });

  it('the secret is judged even beside the right code, so that guesses at codes always count', async () => {
    const target = await start(BEHIND_PROXY);
    const { code, secret } = await mint(target);
    await registerCode(target, 'SECRET');
    // 61 wrong secrets, nine from each address: no restriction for all, and no code without its secret.
    for (let index = 0; index < 61; index++) {
      const payload = { pairing_code: index % 2 === 0 ? code : 'SECRET', pairing_secret: `guess-${index}` };
      expect(await attemptFrom(target, network(Math.floor(index / 9)), payload)).toBe(WRONG);
    }
    expect(await attemptFrom(target, '192.0.2.1', { pairing_code: 'SECRET' })).toBe('auth.ok');
    // Registering the code again keeps the QR code on show good.
    await registerCode(target, code);
    expect(await attemptFrom(target, '192.0.2.2', { pairing_code: code, pairing_secret: secret })).toBe('auth.ok');
    // Wrong secrets count against their own address.
    const outcomes: string[] = [];
    for (let index = 0; index < 11; index++) {
      outcomes.push(await attemptFrom(target, '192.0.2.9', { pairing_code: code, pairing_secret: 'guess' }));
    }
    expect(outcomes).toEqual([...Array(10).fill(WRONG), '429']);
  });
});
