import { expect, it } from 'vitest';
import { imageFormat, imageFormatOf, isImage } from '../../../lib/kit/image-formats.ts';

const bytes = (latin1: string) => Uint8Array.from(latin1, (character) => character.charCodeAt(0));

it.each([
  [' PNG ', 'png'],
  ['jpg', 'jpeg'],
  ['JPEG', 'jpeg'],
  ['gif', 'gif'],
  ['webp', 'webp'],
  ['bmp', undefined],
  ['constructor', undefined],
])('the format named %j is %s', (name, format) => {
  expect(imageFormat(name)).toBe(format);
});

it.each([
  ['\x89PNG\r\n\x1a\nrest', 'png'],
  ['\xff\xd8\xff\xe0', 'jpeg'],
  ['GIF87a', 'gif'],
  ['GIF89a', 'gif'],
  ['RIFF1234WEBP', 'webp'],
  ['RIFF1234WAVE', undefined],
  ['\x89PNG', undefined],
  ['', undefined],
])('bytes %j are %s', (text, format) => {
  expect(imageFormatOf(bytes(text))).toBe(format);
  if (format) expect(isImage(format as 'png', bytes(text))).toBe(true);
  expect(isImage(format === 'png' ? 'gif' : 'png', bytes(text))).toBe(false);
});
