import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { decodeJwt } from 'jose';
import { describe, expect, test } from 'vitest';
import { createOperatorTokens } from '../../lib/access/operator-token.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import { agentHome, run } from '../support/cli.ts';

const silent = createLog('ERROR', () => {});

describe('operator-token', () => {
  test('prints a token that the edge accepts', async () => {
    const env = { SVC_HOME: agentHome() };
    const { code, stdout, stderr } = await run(['relay', 'operator-token'], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+\n$/);
    expect(stderr).toMatch(
      /\[vars\] of wrangler\.toml[\s\S]*RELAY_OPERATOR_PUBLIC_KEY = "-----BEGIN PUBLIC KEY-----\\n/,
    );
    const help = await run(['relay', 'operator-token', '--help'], { env });
    expect(help.stdout).toContain('[vars] of wrangler.toml');
    for (const text of [stderr, help.stdout]) expect(text).not.toContain('secret put');
    expect(stderr).not.toContain(stdout.trim());

    const key = (await run(['relay', 'operator-token', '--public-key'], { env })).stdout;
    expect(key).toMatch(/^-----BEGIN PUBLIC KEY-----\\n.*\\n-----END PUBLIC KEY-----\n$/);
    const tokens = createOperatorTokens(key.trim(), systemClock, silent);
    expect(await tokens.verify(stdout.trim(), ['svc-relay'])).toBe(true);
    expect(await tokens.verify(stdout.trim(), ['another'])).toBe(false);

    const stranger = (await run(['relay', 'operator-token'], { env: { SVC_HOME: agentHome() } })).stdout.trim();
    expect(await tokens.verify(stranger, ['svc-relay'])).toBe(false);

    const { aud, iat = 0, exp = 0, jti } = decodeJwt(stdout.trim());
    expect(aud).toBe('svc-relay');
    expect(exp - iat).toBe(600);
    expect(jti).toMatch(/^[\w-]{20,}$/);
  });

  test.each([
    ['https://Relay.Example/', 'https://relay.example'],
    ['http://localhost:8787', 'http://localhost:8787'],
    ['other-name', 'other-name'],
  ])('contract 01 §12: --relay %s: made out to %s', async (relay, audience) => {
    const { stdout } = await run(['relay', 'operator-token', '--relay', relay], { env: { SVC_HOME: agentHome() } });
    expect(decodeJwt(stdout.trim()).aud).toBe(audience);
  });

  test('contract 01 §12: without --relay: made out to RELAY_NAME', async () => {
    const { stdout } = await run(['relay', 'operator-token'], { env: { SVC_HOME: agentHome(), RELAY_NAME: 'home' } });
    expect(decodeJwt(stdout.trim()).aud).toBe('home');
  });

  test('creates the key once, readable by its owner only', async () => {
    const home = agentHome();
    const env = { SVC_HOME: home };
    await Promise.all(Array.from({ length: 5 }, () => run(['relay', 'operator-token'], { env })));
    const path = join(home, 'svc-relay', 'operator-key.pem');
    const first = readFileSync(path, 'utf8');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(home, 'svc-relay')).mode & 0o777).toBe(0o700);
    await run(['relay', 'operator-token'], { env });
    expect(readFileSync(path, 'utf8')).toBe(first);
    const shown = (await run(['relay', 'operator-token', '--public-key'], { env })).stdout.trim();
    const stored = readFileSync(join(home, 'svc-relay', 'operator-key.pub.pem'), 'utf8');
    expect(shown.replaceAll('\\n', '\n')).toBe(stored.trim());
  });

  test('--ttl and --json', async () => {
    const { stdout, stderr } = await run(['relay', 'operator-token', '--ttl', '15m', '--json'], {
      env: { SVC_HOME: agentHome() },
    });
    expect(stderr).toBe('');
    const { token, expires_at } = JSON.parse(stdout);
    expect(decodeJwt(token).exp).toBe(expires_at);
    expect(expires_at - (decodeJwt(token).iat ?? 0)).toBe(900);
  });

  test.each([['16m'], ['never'], ['0'], ['soon'], ['1d']])('--ttl %s: exit 2', async (ttl) => {
    const { code, stdout, stderr } = await run(['relay', 'operator-token', '--ttl', ttl]);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(/^error: --ttl/);
  });

  test('an invalid key: exit 1, without showing its content', async () => {
    const home = agentHome();
    await run(['relay', 'operator-token'], { env: { SVC_HOME: home } });
    const { writeFileSync } = await import('node:fs');
    writeFileSync(join(home, 'svc-relay', 'operator-key.pem'), 'damaged secret');
    const { code, stderr } = await run(['relay', 'operator-token'], { env: { SVC_HOME: home } });
    expect(code).toBe(1);
    expect(stderr).not.toContain('damaged secret');
    expect(stderr).not.toMatch(/\n\s+at /);
  });
});
