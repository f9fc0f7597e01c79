/** Numbers like one-time codes and accounts: four digits or more, perhaps in groups (`123 456`, `12-34-56`). */
const CODE = /\d(?:[ -]?\d){3,}/;

/** In the languages of the app and some others; whole words if a word may be part of another. */
const WORDS =
  /pass(?:word|code|wort)|kennwort|contraseña|mot de passe|senha|パスワード|認証|暗証|密码|验证码|口令|\b(?:pin|otp|tan|2fa|cvv|iban|code|código|codigo|secret|token)\b/i;

/** True if a text may contain something that a bystander should not read: a code, a password, an account. */
export const isSensitive = (text: string): boolean => CODE.test(text) || WORDS.test(text);
