import { expect, it } from 'vitest';
import { isSensitive } from '../../handlers/web/app/sensitive.ts';

it.each([
  ['Your number is 482 913', true],
  ['G-483920', true],
  ['12-34-56', true],
  ['Dein Passwort wurde geändert', true],
  ['Contraseña nueva', true],
  ['Mot de passe oublié ?', true],
  ['認証コード', true],
  ['您的验证码', true],
  ['Use this PIN.', true],
  ['Lunch at noon?', false],
  ['3 new messages in 12 minutes', false],
  ['A shopping list, and a Tanzanian coffee', false],
])('what a shoulder should not read: %s', (text, expected) => {
  expect(isSensitive(text)).toBe(expected);
});
