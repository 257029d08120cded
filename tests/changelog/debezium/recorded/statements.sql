create table t (id int unsigned auto_increment primary key, v varchar(20) not null default 'x', j json, e enum('a','b'), s set('p','q'), d decimal(10,3), ts timestamp(3) null, ts0 timestamp null, dt datetime(2), dt6 datetime(6), tm time, tm3 time(3), y year, b1 bit(1), b5 bit(10), bin binary(4), bl blob, f float, db double, dd date, bo boolean, ti tinyint unsigned, bi bigint unsigned, pt point, ge geometry, dec0 decimal(20,0))
;
create table k (a int, b varchar(5), c int, unique key (b,a))
;
create table nk (a int)
;
insert into t(v,j,e,s,d,ts,ts0,dt,dt6,tm,tm3,y,b1,b5,bin,bl,f,db,dd,bo,ti,bi,pt,ge,dec0) values ('é','{"a":1}','b','p,q',-1.5,'2024-01-02 03:04:05.678','2024-01-02 03:04:05','2024-01-02 03:04:05.12','2024-01-02 03:04:05.123456','-12:34:56','12:34:56.789',2024,1,b'1000000011','ab','xyz',0.1,2.5,'2024-02-29',true,255,7,ST_GeomFromText('POINT(1 2)'),ST_GeomFromText('LINESTRING(1 2,3 4)'),12345678901234567890),(default,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null)
;
insert into nk values (1),(1)
;
-- stream
;
insert into t(v,j,e,s,d,ts,ts0,dt,dt6,tm,tm3,y,b1,b5,bin,bl,f,db,dd,bo,ti,bi,pt,ge,dec0) values ('é','{"a":1}','b','p,q',-1.5,'2024-01-02 03:04:05.678','2024-01-02 03:04:05','2024-01-02 03:04:05.12','2024-01-02 03:04:05.123456','-12:34:56','12:34:56.789',2024,1,b'1000000011','ab','xyz',0.1,2.5,'2024-02-29',true,255,7,ST_GeomFromText('POINT(1 2)'),ST_GeomFromText('LINESTRING(1 2,3 4)'),-5)
;
begin
;
update t set v='z' where id=1
;
update t set id=70 where id=1
;
insert into k values (1,'x',1)
;
delete from t where id=70
;
commit
;
alter table t add column extra int default 5
;
insert into t(v) values('last')
;
update nk set a=2 limit 1
;
truncate table nk
;
