import type { Table } from '../i18n.ts';

/** Files of the relay, wherever they are shown, and what other apps share with this one. */
const table: Table = {
  'The relay does not hand out this file.': [
    'Das Relay gibt diese Datei nicht heraus.',
    'El relay no entrega este archivo.',
    'リレーはこのファイルを渡しません。',
    'O relay não entrega este arquivo.',
    '中继不提供此文件。',
  ],
  'This file is not there any more.': [
    'Diese Datei gibt es nicht mehr.',
    'Este archivo ya no está.',
    'このファイルはもうありません。',
    'Este arquivo não existe mais.',
    '此文件已不存在。',
  ],
  'The file could not be loaded.': [
    'Die Datei konnte nicht geladen werden.',
    'No se pudo cargar el archivo.',
    'ファイルを読み込めませんでした。',
    'Não foi possível carregar o arquivo.',
    '无法加载此文件。',
  ],
  'This browser cannot show the file.': [
    'Dieser Browser kann die Datei nicht anzeigen.',
    'Este navegador no puede mostrar el archivo.',
    'このブラウザーではファイルを表示できません。',
    'Este navegador não consegue mostrar o arquivo.',
    '此浏览器无法显示该文件。',
  ],
};

export default table;
