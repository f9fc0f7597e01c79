import { describe, expect, it } from 'vitest';
import { isSecretName, mentionsSecret } from '../../../lib/kit/secret-names.ts';

describe('records of phone commands (contract 03 §6)', () => {
  it.each([
    'password',
    'Token',
    'SECRET',
    'otp',
    'bearer',
    'passwd',
    'authorization',
    'Cookie',
    'apikey',
    'api_key',
    'apiKey',
    'API-Key',
    'pin',
    'accessToken',
    'media_token',
    'X-Authorization',
    'userPIN',
    'PINCode',
    'otp2',
    'my password',
  ])('%s is secret', (key) => expect(mentionsSecret(key)).toBe(true));

  it.each(['tokens', 'pinned', 'spin', 'passenger', 'apiVersion', 'author', 'cookies', 'keyapi', 'shopping', 'x'])(
    '%s is not',
    (key) => expect(mentionsSecret(key)).toBe(false),
  );
});

describe('tool arguments (contract 07 §2.3)', () => {
  it.each([
    'password',
    'sudo_password',
    'Passphrase',
    'api-key',
    'X_API_KEY',
    'apiKey',
    'accessToken',
    'client-secret',
    'otp',
    'Proxy-Authorization',
    'set-cookie',
    'ssh_private_key',
    'bearer',
  ])('%s is secret', (key) => expect(isSecretName(key)).toBe(true));

  it.each(['tokens', 'token_count', 'passwords', 'command', 'key', 'cookies', 'desktop', ''])('%s is not', (key) =>
    expect(isSecretName(key)).toBe(false),
  );
});

describe('the common list', () => {
  const ENDINGS = [
    'apikey',
    'api_key',
    'authorization',
    'bearer',
    'cookie',
    'otp',
    'passphrase',
    'passwd',
    'password',
    'pin',
    'private_key',
    'secret',
    'token',
  ];

  it.each(ENDINGS.flatMap((word) => [word, `my_${word}`, `X-${word}`.toUpperCase(), `the ${word}`]))(
    '%s is secret by both rules',
    (name) => {
      expect(isSecretName(name)).toBe(true);
      expect(mentionsSecret(name)).toBe(true);
    },
  );

  it.each(['accessToken', 'clientSecret', 'devicePin', 'userPIN', 'privateKey'])(
    '%s is secret in camelCase, too',
    (name) => {
      expect(isSecretName(name)).toBe(true);
      expect(mentionsSecret(name)).toBe(true);
    },
  );

  it.each(['token_count', 'password_hint', 'PINCode', 'private_key_path'])('%s only mentions a secret', (name) => {
    expect(isSecretName(name)).toBe(false);
    expect(mentionsSecret(name)).toBe(true);
  });

  it.each(['spin', 'pinned', 'total_tokens', 'keyboard', 'compass', 'author', '', '__proto__'])(
    '%j is not secret',
    (name) => {
      expect(isSecretName(name)).toBe(false);
      expect(mentionsSecret(name)).toBe(false);
    },
  );
});
